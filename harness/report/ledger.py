"""A ledger in words: every request with what was reused of it and why no more, and the sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from harness.ledger import RequestRow, Run, VerdictRow
from harness.report.table import columns
from harness.setting import Setting

_HEAD = ("step", "conversation", "purpose", "adapters", "slot", "cache_n/prompt_n", "again", "why")
_SUMS_HEAD = ("requests", "prompt tokens", "reused", "read again")


def rows(run: Run, *, only_reasons: bool = False) -> Iterator[str]:
    """The steps, scenario after scenario; on request only those that have a reason."""
    for verdict in run.verdicts:
        told = [row for row in verdict.requests if row.reason or not only_reasons]
        if told:
            yield f"{_where(verdict)}: {verdict.verdict}"
            yield from (f"  {line}" for line in columns([_HEAD, *map(_cells, told)]))
            yield ""


def _where(verdict: VerdictRow) -> str:
    configuration = "-".join(filter(None, [verdict.model, verdict.configuration]))
    return f"{verdict.scenario}[{configuration}] on {verdict.build}"


def _cells(row: RequestRow) -> tuple[str, ...]:
    why = str(row.reason) if row.reason else ""
    if not row.prompt_tokens:
        return (row.step, "", row.route, "", _slot(row), "", "", why)
    adapters, again = str(Setting.of(row.setting)), str(row.read_again or "")
    conversation, purpose = row.conversation or "", row.purpose or ""
    return (row.step, conversation, purpose, adapters, _slot(row), row.reuse, again, why)


def _slot(row: RequestRow) -> str:
    slot = row.slot_asked if row.slot is None else row.slot
    parts = ["" if slot is None else str(slot), f"({row.chosen})" if row.chosen else ""]
    return " ".join(filter(None, parts))


@dataclass(slots=True)
class _Sum:
    """Of the requests of one group, in tokens."""

    requests: int = 0
    prompt: int = 0
    reused: int = 0
    again: int = 0

    def add(self, row: RequestRow) -> None:
        """One more."""
        self.requests += 1
        self.prompt += row.prompt_tokens
        self.reused += row.cache_n or 0
        self.again += row.read_again

    def cells(self) -> tuple[str, ...]:
        share = f"{self.reused / self.prompt:.0%}" if self.prompt else "-"
        return str(self.requests), str(self.prompt), f"{self.reused} ({share})", str(self.again)


_Key = Callable[[VerdictRow, RequestRow], str]

_GROUPS: Mapping[str, _Key] = {
    "conversation": lambda verdict, row: f"{verdict.scenario} {row.conversation or '-'}",
    "purpose": lambda _, row: row.purpose or "-",
    "adapters": lambda _, row: str(Setting.of(row.setting)),
    "slot choice": lambda _, row: row.chosen or "not told",
}


def sums(run: Run) -> Iterator[str]:
    """What all requests for an answer come to, in groups; the most read again comes first."""
    answered = [
        (verdict, row)
        for verdict in run.verdicts
        for row in verdict.requests
        if row.cache_n is not None
    ]
    for name, key in _GROUPS.items():
        yield from _table(f"by {name}", _summed(answered, key))
        yield ""
    yield from _reasons(run.verdicts)


def _summed(answered: Iterable[tuple[VerdictRow, RequestRow]], key: _Key) -> dict[str, _Sum]:
    found: dict[str, _Sum] = {}
    for verdict, row in answered:
        found.setdefault(key(verdict, row), _Sum()).add(row)
    return found


def _table(title: str, found: Mapping[str, _Sum]) -> list[str]:
    ordered = sorted(found.items(), key=lambda item: (-item[1].again, item[0]))
    total = _Sum(
        requests=sum(s.requests for s in found.values()),
        prompt=sum(s.prompt for s in found.values()),
        reused=sum(s.reused for s in found.values()),
        again=sum(s.again for s in found.values()),
    )
    body = [(name, *group.cells()) for name, group in ordered]
    return columns([(title, *_SUMS_HEAD), *body, ("all", *total.cells())])


def _reasons(verdicts: Iterable[VerdictRow]) -> list[str]:
    steps: dict[str, list[RequestRow]] = {}
    for verdict in verdicts:
        for row in verdict.requests:
            if row.reason:
                steps.setdefault(row.reason.cause, []).append(row)
    ordered = sorted(steps.items(), key=lambda item: (-_again(item[1]), item[0]))
    body = [
        (cause, str(len(found)), str(sum(bool(row.failures) for row in found)), str(_again(found)))
        for cause, found in ordered
    ]
    return columns([("by reason", "steps", "failed", "read again"), *body])


def _again(found: Iterable[RequestRow]) -> int:
    return sum(row.read_again for row in found)
