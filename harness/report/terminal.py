"""The table at the end of a run: scenario by configuration, what each step reused, the verdict."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from harness.ledger import ColdRow, Verdict, VerdictRow
from harness.report.reasons import Group, groups, in_tokens
from harness.report.table import folded, wrapped
from harness.report.wording import link, shown

_HEAD = (
    "scenario",
    "cache_n/prompt_n of each request",
    "verdict",
    "issue",
    "found",
    "configurations",
)
_LARGE_FILE = 1_000_000
"""Bytes from which on the time to read a file says something."""
_NAMED = 3
"""Scenarios that are named for a reason."""
_Choices = tuple[tuple[str, ...], ...]
"""For each part of a configuration what it is in some of them."""
_STARTS = 3
"""Command lines that are shown: each is long."""
_NOT_SHOWN_AS_ROWS = (Verdict.UNSUPPORTED, Verdict.NOT_TESTED)


def summary(rows: Sequence[VerdictRow], width: int) -> list[str]:
    """Render the whole result in lines of `width` columns.

    The table, what was not tested and why, and the totals.
    """
    tested = [row for row in rows if row.verdict not in _NOT_SHOWN_AS_ROWS]
    lines = _table(tested, width) if tested else []
    texts = [*answers(tested), *_slot_files(tested), *bugs(tested)]
    lines += [line for text in texts for line in wrapped(text, width)]
    lines += _reasons(tested, width)
    not_tested = [row for row in rows if row.verdict in _NOT_SHOWN_AS_ROWS]
    lines += [line for text in _not_tested(not_tested) for line in wrapped(text, width)]
    lines += starts(not_tested)
    totals = Counter(row.verdict for row in rows)
    counts = (f"{totals[verdict]} {verdict}" for verdict in Verdict if totals[verdict])
    return [*lines, f"scenarios: {', '.join(counts)}"]


def _table(rows: Sequence[VerdictRow], width: int) -> list[str]:
    """Configurations with the same outcome share a row."""
    builds, models = {row.build for row in rows}, {row.model for row in rows}
    merged: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        build = (row.build,) if len(builds) > 1 else ()
        model = [row.model] if len(models) > 1 else []
        where = "-".join(filter(None, [*model, row.configuration]))
        merged.setdefault((*build, *_outcome(row)), []).append(where)
    head = (("build",) if len(builds) > 1 else ()) + _HEAD
    body = sorted((*key, abbreviated(where)) for key, where in merged.items())
    return folded([head, *body], width)


def _outcome(row: VerdictRow) -> tuple[str, ...]:
    reuse = " ".join(row.reuses)
    found = "; ".join(filter(None, [shown(row.signature), row.reason]))
    issue = row.issue or ""
    if issue and row.verdict is Verdict.FAILED:
        issue = f"like {issue}"  # as on the builds it is known for; this one is another
    return (row.scenario, reuse, row.verdict.value, issue, found)


def answers(rows: Sequence[VerdictRow]) -> list[str]:
    """What answers were held to, by build and model, where the tolerance had to be measured."""
    measured: dict[tuple[str, bool], list[ColdRow]] = {}
    several = len({row.model for row in rows}) > 1
    for row in rows:
        who = f"{row.build} with {row.model}" if several else row.build
        for cold in (request.cold for request in row.requests):
            if cold is not None and cold.signal is not None:
                measured.setdefault((who, cold.apart is not None), []).append(cold)
    return [
        f"answers on {who}: {len(found)} {_compared(found) if told else 'not judged'}; "
        f"control: noise {_nats(cold.noise for cold in found)}, "
        f"other adapters or text {_nats(cold.signal for cold in found)}"
        for (who, told), found in measured.items()
    ]


def _compared(rows: Sequence[ColdRow]) -> str:
    apart, allowed = _nats(cold.apart for cold in rows), _nats(cold.limit for cold in rows)
    return f"judged, {apart} nats from a cold run's, {allowed} allowed"


def _nats(numbers: Iterable[float | None]) -> str:
    known = [number for number in numbers if number is not None]
    if not known:
        return "unknown"
    low, high = f"{min(known):.1e}", f"{max(known):.1e}"
    return low if low == high else f"{low} to {high}"


def _slot_files(rows: Iterable[VerdictRow]) -> list[str]:
    """How fast large slot files were saved and restored, each scenario's as one line."""
    speeds: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        for request in row.requests:
            if request.file and request.file.bytes >= _LARGE_FILE and request.file.ms:
                key = (row.build, row.scenario, request.route)
                speeds.setdefault(key, []).append(request.file.megabytes_a_second)
    return [
        f"slot files on {build}, {scenario}: {route} at {_span(found)} MB/s"
        for (build, scenario, route), found in speeds.items()
    ]


def _span(numbers: Sequence[float]) -> str:
    low, high = f"{min(numbers):.0f}", f"{max(numbers):.0f}"
    return low if low == high else f"{low} to {high}"


def bugs(rows: Iterable[VerdictRow]) -> list[str]:
    """A line for each bug that a table names."""
    named = sorted({(row.issue, row.bug or "") for row in rows if row.issue})
    return [" ".join(filter(None, [f"{issue}:", what, link(issue)])) for issue, what in named]


def _reasons(rows: Iterable[VerdictRow], width: int) -> list[str]:
    """The failing steps by reason."""
    body = [
        (group.cause, str(len(group.steps)), in_tokens(group.read_again), _scenarios(group))
        for group in groups(rows, only_failed=True)
    ]
    head = ("why steps failed, known bugs included", "steps", "read again", "in (steps)")
    return ["", *folded([head, *body], width), ""] if body else []


def _scenarios(group: Group) -> str:
    """The scenarios with the most of these steps."""
    counts = Counter(verdict.scenario.partition("::")[2] for verdict, _ in group.steps)
    named = ", ".join(f"{name} ({count})" for name, count in counts.most_common(_NAMED))
    return named if len(counts) <= _NAMED else f"{named} and {len(counts) - _NAMED} more"


def abbreviated(configurations: Iterable[str]) -> str:
    """`np1-kvu-chat np1-nokvu-chat` as `np1-{kvu,nokvu}-chat`, and so on, as far as that goes."""
    groups: dict[int, list[_Choices]] = {}
    for parts in (configuration.split("-") for configuration in sorted(configurations)):
        groups.setdefault(len(parts), []).append(tuple((part,) for part in parts))
    merged = sorted(choices for group in groups.values() for choices in _merged(group))
    return " ".join("-".join(map(_braced, choices)) for choices in merged)


def _merged(group: list[_Choices]) -> list[_Choices]:
    """Those that differ in one place as one, place after place."""
    for place in reversed(range(len(group[0]))):
        found: dict[tuple[_Choices, _Choices], list[str]] = {}
        for choices in group:
            around = (choices[:place], choices[place + 1 :])
            found.setdefault(around, []).extend(choices[place])
        group = [(*left, tuple(sorted(here)), *right) for (left, right), here in found.items()]
    return group


def _braced(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{{{','.join(choices)}}}"


def _not_tested(rows: Iterable[VerdictRow]) -> list[str]:
    reasons = Counter((row.verdict, row.reason or "") for row in rows)
    return [
        f"{verdict}: {count} configuration{'s' if count > 1 else ''}: {reason}"
        for (verdict, reason), count in reasons.items()
    ]


def starts(rows: Iterable[VerdictRow]) -> list[str]:
    """How to start a server for what was not tested on the one that was attached to."""
    wanted: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        if row.start_as:
            wanted.setdefault(row.start_as, []).append(f"{row.scenario}[{row.configuration}]")
    if len(wanted) > _STARTS:
        return ["to see how to start a server for one of these, select it alone (-k)"]
    return [f"for {_others(names)} start it as: {shlex.join(c)}" for c, names in wanted.items()]


def _others(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
