"""What changed in the suite from one build to another: two runs in, changes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.ledger import RequestRow, Run, Verdict, VerdictRow

Key = tuple[str, str, str]
"""Scenario, configuration and model."""


class Kind(StrEnum):
    """What became of a scenario, the worst first."""

    BROKEN = "broken"
    """Fails in a way it did not before, or gives no verdict any more for an error."""
    REUSE_DOWN = "reuse down"
    """The same verdict, and a step that reuses less of the same prompt."""
    NO_LONGER_TESTED = "no longer tested"
    NEWLY_TESTED = "newly tested"
    REUSE_UP = "reuse up"
    FIXED = "fixed"
    """Fails in fewer ways than before, or in none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChange:
    """One step before and after; None where it was not reached."""

    step: str
    before: RequestRow | None
    after: RequestRow | None

    @property
    def tokens(self) -> int | None:
        """How many more are reused; None where that says nothing."""
        if self.before is None or self.after is None:
            return None
        if self.before.cache_n is None or self.after.cache_n is None:
            return None
        if self.before.prompt_tokens != self.after.prompt_tokens:
            return None
        return self.after.cache_n - self.before.cache_n


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What changed of one scenario, in one configuration, with one model."""

    kind: Kind
    before: VerdictRow | None
    """None where that run had no such scenario."""
    after: VerdictRow | None
    new: tuple[str, ...] = ()
    """`step: kind` of failures there were not before."""
    gone: tuple[str, ...] = ()
    """`step: kind` of failures there are no more."""
    steps: tuple[StepChange, ...] = ()
    """The steps it is about."""

    @property
    def row(self) -> VerdictRow:
        """Either one, to say which scenario it is."""
        row = self.after or self.before
        assert row is not None
        return row

    @property
    def tokens(self) -> int:
        """How many more are reused in all of these steps."""
        return sum(step.tokens or 0 for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All that changed, the worst first."""

    changes: tuple[Change, ...]
    unchanged: int
    """Scenarios that reached a verdict on both, of which nothing changed."""
    compared: int
    """Scenarios that reached a verdict on both."""
    untested: int
    """Scenarios that reached one on neither."""

    @property
    def counts(self) -> Mapping[Kind, int]:
        """How many changes there are of each kind."""
        found = Counter(change.kind for change in self.changes)
        return {kind: found[kind] for kind in Kind}


def compare(base: Run, head: Run) -> Comparison:
    """What changed from `base` to `head`, each a run on one build."""
    before, after = _by_key(base.verdicts), _by_key(head.verdicts)
    pairs = [(before.get(key), after.get(key)) for key in dict.fromkeys((*before, *after))]
    changes = [change for pair in pairs if (change := _change(*pair)) is not None]
    both = [pair for pair in pairs if all(map(_reached, pair))]
    return Comparison(
        changes=tuple(sorted(changes, key=_place)),
        unchanged=sum(_change(*pair) is None for pair in both),
        compared=len(both),
        untested=sum(not any(map(_reached, pair)) for pair in pairs),
    )


def _place(change: Change) -> tuple[int, str, str, str]:
    """The same in any order of the runs: workers of pytest-xdist have none."""
    row = change.row
    return [*Kind].index(change.kind), row.scenario, row.model, row.configuration


def _by_key(rows: Iterable[VerdictRow]) -> dict[Key, VerdictRow]:
    return {(row.scenario, row.configuration, row.model): row for row in rows}


def _reached(row: VerdictRow | None) -> bool:
    return row is not None and row.verdict.reached


def _change(before: VerdictRow | None, after: VerdictRow | None) -> Change | None:
    """What changed; None for nothing, or where neither found out anything."""
    if not _reached(before):
        newly = Change(kind=Kind.NEWLY_TESTED, before=before, after=after)
        return newly if _reached(after) else None
    assert before is not None
    if after is None or not _reached(after):
        error = after is not None and after.verdict is Verdict.ERROR
        kind = Kind.BROKEN if error else Kind.NO_LONGER_TESTED
        return Change(kind=kind, before=before, after=after)
    return _failures(before, after) or _reuse(before, after)


def _failures(before: VerdictRow, after: VerdictRow) -> Change | None:
    """Of two verdicts, where they fail in other ways."""
    new = tuple(sorted({*after.signature} - {*before.signature}))
    gone = tuple(sorted({*before.signature} - {*after.signature}))
    if not new and not gone:
        return None
    about = {entry.rpartition(": ")[0] for entry in new or gone}
    return Change(
        kind=Kind.BROKEN if new else Kind.FIXED,
        before=before,
        after=after,
        new=new,
        gone=gone,
        steps=tuple(step for step in _steps(before, after) if step.step in about),
    )


def _reuse(before: VerdictRow, after: VerdictRow) -> Change | None:
    """Of two that are the same otherwise. Others do not make up for a step that reuses less."""
    steps = tuple(step for step in _steps(before, after) if step.tokens)
    if not steps:
        return None
    down = any((step.tokens or 0) < 0 for step in steps)
    kind = Kind.REUSE_DOWN if down else Kind.REUSE_UP
    return Change(kind=kind, before=before, after=after, steps=steps)


def _steps(before: VerdictRow, after: VerdictRow) -> Iterator[StepChange]:
    """The steps of both in order, those of the same name and place together."""
    ours, theirs = _named(before.requests), _named(after.requests)
    for name in dict.fromkeys((*theirs, *ours)):
        yield StepChange(step=name[0], before=ours.get(name), after=theirs.get(name))


def _named(rows: Sequence[RequestRow]) -> dict[tuple[str, int], RequestRow]:
    """Steps by their names, and which of that name they are."""
    seen: Counter[str] = Counter()
    named: dict[tuple[str, int], RequestRow] = {}
    for row in rows:
        named[row.step, seen[row.step]] = row
        seen[row.step] += 1
    return named
