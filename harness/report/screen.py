"""The first screen of a result: the verdict, what is new in full, and counts of the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.check import reasons_of
from harness.errors import Selectable
from harness.ledger import Verdict, VerdictRow
from harness.models.synthetic.store import MODELS
from harness.report.table import columns, wrapped
from harness.report.terminal import abbreviated, answers, starts
from harness.report.wording import shown

_REASONS = 5
"""Reasons not to be tested that are shown; `-v` shows all."""
_INDENT = "    "
_UNREPORTED = "unreported"
_UNTESTED = (Verdict.UNSUPPORTED, Verdict.NOT_TESTED)


class Colour(StrEnum):
    """The colour of a line, by pytest's names."""

    GOOD = "green"
    BAD = "red"
    KNOWN = "yellow"
    PLAIN = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line, no wider than the screen."""

    text: str
    colour: Colour = Colour.PLAIN


def screen(
    rows: Sequence[VerdictRow], *, width: int, titles: Mapping[str, str], more: str
) -> Iterator[Line]:
    """Render a run for a person: most of it fits one screen of `width` columns.

    `titles` are those of known bugs by issue. `more` says how to see the rest.
    """
    for build in dict.fromkeys(row.build for row in rows):
        yield from _wrapped(*_verdict(build, [row for row in rows if row.build == build]), width)
    yield from _new(rows, width)
    yield from _without_verdict(rows, width)
    yield from _gone(rows, titles, width)
    yield from _known(rows, titles, width)
    fitting = [row for row in rows if row.reason == Selectable.REASON]
    yield from _apart(_fitting(fitting, width))
    yield from _apart(Line(line) for line in columns(_files(rows)) if not fitting)
    yield from _apart(_untested(rows, width))
    # How far right answers may be apart is of interest where it decides whether they are judged.
    real = any(row.model not in MODELS for row in rows)
    for text in (text for text in answers(rows) if real or "not judged" in text):
        yield from _wrapped(text, Colour.PLAIN, width)
    yield from _apart(_wrapped(more, Colour.PLAIN, width))


def is_new(row: VerdictRow) -> bool:
    """Return whether a scenario failed in a way that no known bug does.

    What failed before an error failed all the same.
    """
    return bool(row.signature) and not row.issue and row.verdict in (Verdict.FAILED, Verdict.ERROR)


def sameness(row: VerdictRow) -> tuple[object, ...]:
    """Return what two failures have in common when one example stands for both."""
    if row.verdict is Verdict.ERROR:
        return row.verdict, row.reason
    if row.verdict is Verdict.KNOWN_BUG_GONE:
        return row.verdict, row.issue
    kinds = tuple(sorted({entry.rpartition(": ")[2] for entry in row.signature}))
    return row.verdict, row.issue, kinds, row.why and row.why.cause


def _verdict(build: str, rows: Sequence[VerdictRow]) -> tuple[str, Colour]:
    """Say in one sentence what was found out about a build."""
    counts = Counter(row.verdict for row in rows)
    new = sum(map(is_new, rows))
    like = sum(row.verdict is Verdict.FAILED and not is_new(row) for row in rows)
    known, gone = counts[Verdict.KNOWN_BUG], counts[Verdict.KNOWN_BUG_GONE]
    errors, holds = counts[Verdict.ERROR], counts[Verdict.HOLDS]
    untested = sum(counts[verdict] for verdict in _UNTESTED)
    shown_now = (Verdict.FAILED, Verdict.KNOWN_BUG)
    bugs = len({row.issue for row in rows if row.issue and row.verdict in shown_now})
    named = f"{bugs} known bug{'s' if bugs > 1 else ''}"
    nothing_new = "" if new or gone or errors else ", nothing new"
    like_what = f", all like {named}{nothing_new}" if nothing_new else f" like {named}"
    told = [
        f"{new} failed like nothing known" if new else "",
        f"{gone} no longer show{_s(gone)} a known bug" if gone else "",
        f"{like} failed{like_what}" if like else "",
        f"{known} fail{_s(known)} as {named} do{'es' if bugs == 1 else ''}{nothing_new}"
        if known
        else "",
        f"{errors} gave no verdict" if errors else "",
        f"{holds} hold{_s(holds)}" if holds else "",
        f"{untested} not tested" if untested else "",
    ]
    parts = [part for part in told if part]
    if not any(row.verdict.reached or row.signature for row in rows):
        parts.insert(0, "nothing was found out")
    bad = new or gone or like or errors
    colour = Colour.BAD if bad else Colour.GOOD if holds or known else Colour.KNOWN
    return f"{build}: {'; '.join(parts)}", colour


def _s(count: int) -> str:
    """Return the ending of a verb."""
    return "s" if count == 1 else ""


def _new(rows: Sequence[VerdictRow], width: int) -> Iterator[Line]:
    """Show what fails like nothing known: each failure with its numbers, reason and places."""
    groups: dict[tuple[object, ...], list[VerdictRow]] = {}
    for row in filter(is_new, rows):
        key = (row.build, row.scenario, row.signature, row.why and row.why.cause)
        groups.setdefault(key, []).append(row)
    several = len({row.build for row in rows}) > 1
    for first, *others in groups.values():
        yield Line("")
        on = f" on {first.build}" if several else ""
        yield from _wrapped(f"NEW {first.scenario}{on}", Colour.BAD, width)
        texts = [
            shown(first.signature),
            f"cache_n/prompt_n: {' '.join(first.reuses)}",
            f"why: {first.why}" if first.why else "",
            f"in: {abbreviated(map(_place, (first, *others)))}",
        ]
        for text in filter(None, texts):
            yield from _wrapped(text, Colour.PLAIN, width, indent=_INDENT)


def _without_verdict(rows: Sequence[VerdictRow], width: int) -> Iterator[Line]:
    """Name each thing that kept scenarios from a verdict, with how many it concerns."""
    errors = Counter(row.reason or "" for row in rows if row.verdict is Verdict.ERROR)
    untested = reasons_of(row for row in rows if row.verdict in _UNTESTED)
    if errors:
        yield Line("")
    for reason, count in errors.most_common():
        also = f", {untested[reason]} not tested for it" if reason in untested else ""
        yield from _wrapped(f"NO VERDICT {reason} ({count}{also})", Colour.BAD, width)


def _gone(rows: Sequence[VerdictRow], titles: Mapping[str, str], width: int) -> Iterator[Line]:
    gone = Counter(row.issue or "" for row in rows if row.verdict is Verdict.KNOWN_BUG_GONE)
    if gone:
        yield Line("")
    for issue, count in gone.most_common():
        text = f"FIXED? {issue} does not show in {count}: {titles.get(issue, '')}".removesuffix(
            ": "
        )
        yield from _wrapped(text, Colour.BAD, width)


def _known(rows: Sequence[VerdictRow], titles: Mapping[str, str], width: int) -> Iterator[Line]:
    """Give each known bug a line: how many configurations show it, its issue, and what it is."""
    known = [
        row for row in rows if row.issue and row.verdict in (Verdict.FAILED, Verdict.KNOWN_BUG)
    ]
    counts = Counter(row.issue or "" for row in known)
    if not counts:
        return
    yield Line("")
    digits = max(len(str(count)) for count in counts.values())
    for issue, count in counts.most_common():
        where, _, name = issue.partition(": ")
        title = ": ".join(filter(None, [name, titles.get(issue, "")]))
        text = f"{count}  {where:{len(_UNREPORTED)}}  {title}".rstrip()
        then = " " * (len(str(count)) + len(_UNREPORTED) + 4)
        indent = " " * (digits - len(str(count)))
        yield from _wrapped(text, Colour.KNOWN, width, indent=indent, then=then)


def _files(rows: Iterable[VerdictRow]) -> list[tuple[str, ...]]:
    """Count verdicts by file; a kind of verdict that nothing has is left out."""
    kinds = {
        "holds": lambda row: row.verdict is Verdict.HOLDS,
        "known bug": lambda row: bool(row.issue) and row.verdict is not Verdict.KNOWN_BUG_GONE,
        "new": lambda row: is_new(row) or row.verdict is Verdict.KNOWN_BUG_GONE,
        "no verdict": lambda row: row.verdict is Verdict.ERROR,
        "not tested": lambda row: row.verdict in _UNTESTED,
    }
    files: dict[str, list[VerdictRow]] = {}
    for row in sorted(rows, key=lambda row: row.scenario):
        files.setdefault(row.scenario.partition("::")[0], []).append(row)
    everything = [row for its in files.values() for row in its]
    used = {name: is_kind for name, is_kind in kinds.items() if any(map(is_kind, everything))}
    body = [
        (name, *(f"{sum(map(is_kind, its)) or '':>{len(kind)}}" for kind, is_kind in used.items()))
        for name, its in files.items()
    ]
    return [("file", *used), *body]


def _untested(rows: Sequence[VerdictRow], width: int) -> Iterator[Line]:
    """Say why configurations were not tested, the most frequent reasons first."""
    untested = [row for row in rows if row.verdict in _UNTESTED]
    said = {row.reason for row in rows if row.verdict is Verdict.ERROR} | {Selectable.REASON}
    reasons = [
        f"{verdict}: {count} configuration{'s' if count > 1 else ''}: {reason}"
        for verdict in _UNTESTED
        for reason, count in reasons_of(r for r in untested if r.verdict is verdict).items()
        if reason not in said
    ]
    for reason in reasons[:_REASONS]:
        yield from _wrapped(reason, Colour.PLAIN, width)
    if len(reasons) > _REASONS:
        rest = len(reasons) - _REASONS
        yield Line(f"not tested: for {rest} more reason{'' if rest == 1 else 's'} (-v)")
    for text in starts(untested):
        yield Line(text)  # a command line, to be copied as one


def _fitting(rows: Sequence[VerdictRow], width: int) -> Iterator[Line]:
    """Name the scenarios that fit the server that was attached to."""
    if rows:
        text = (
            f"{len(rows)} fit this server, and nothing was sent to it: select one with -k. "
            "The server tests one scenario each time it is started."
        )
        yield from _wrapped(text, Colour.PLAIN, width)
    places: dict[str, list[str]] = {}
    for row in rows:
        places.setdefault(row.scenario, []).append(_place(row))
    for scenario, its in places.items():
        yield from _wrapped(f"{scenario}[{abbreviated(its)}]", Colour.PLAIN, width, indent=_INDENT)


def _place(row: VerdictRow) -> str:
    return "-".join(filter(None, [row.model, row.configuration]))


def _apart(lines: Iterable[Line]) -> Iterator[Line]:
    """Set lines apart from those before; nothing where there are none."""
    for number, line in enumerate(lines):
        if number == 0:
            yield Line("")
        yield line


def _wrapped(
    text: str, colour: Colour, width: int, *, indent: str = "", then: str = "  "
) -> Iterator[Line]:
    """Fold a text to the width of the screen, the further lines indented by `then`."""
    for line in wrapped(text, width - len(indent), then):
        yield Line(indent + line, colour)
