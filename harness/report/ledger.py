"""A ledger in words: every request with what was reused of it and why no more, and the sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from harness.ledger import RequestRow, Run, VerdictRow
from harness.report.reasons import groups, in_tokens
from harness.report.table import columns
from harness.setting import Setting

_NONE = "-"
_HEAD = (
    *("step", "conversation", "what", "adapters", "slot"),
    *("cache_n/prompt_n", "read again", "why"),
)
_SUMS_HEAD = ("requests", "prompt tokens", "reused", "read again")


class Only(Enum):
    """Which steps to show; the value is what is said where there is none."""

    ALL = "no steps"
    REASONS = "no step has a reason"
    FAILED = "no step failed"

    def takes(self, row: RequestRow) -> bool:
        """Whether a step is among them."""
        return self is Only.ALL or bool(row.failures if self is Only.FAILED else row.reason)


def rows(run: Run, only: Only = Only.ALL) -> Iterator[str]:
    """The steps, scenario after scenario."""
    some = False
    for verdict in run.verdicts:
        told = [row for row in verdict.requests if only.takes(row)]
        if told:
            some = True
            yield f"{_where(verdict)}: {verdict.verdict}"
            yield from (f"  {line}" for line in columns([_HEAD, *map(_cells, told)]))
            yield ""
    if not some:
        yield only.value
    silent = sum(not verdict.requests for verdict in run.verdicts)
    if silent:
        yield f"scenarios without a step (not tested, say): {silent}"


def _where(verdict: VerdictRow) -> str:
    configuration = "-".join(filter(None, [verdict.model, verdict.configuration]))
    return f"{verdict.scenario}[{configuration}] on {verdict.build}"


def _cells(row: RequestRow) -> tuple[str, ...]:
    why = str(row.reason) if row.reason else ""
    if not row.prompt_tokens:
        return (row.step, "", row.route, "", _slot(row), "", "", why)
    adapters, again = str(Setting.of(row.setting)), str(row.read_again or "")
    who = row.conversation or _NONE, row.purpose or _NONE
    return (row.step, *who, adapters, _slot(row), row.reuse, again, why)


def _slot(row: RequestRow) -> str:
    slot = row.slot_asked if row.slot is None else row.slot
    parts = ["" if slot is None else str(slot), f"({row.chosen})" if row.chosen else ""]
    return " ".join(filter(None, parts))


@dataclass(slots=True)
class _Sum:
    """Of requests, in tokens."""

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
        """As a table shows it."""
        share = f"{self.reused / self.prompt:.0%}" if self.prompt else _NONE
        return str(self.requests), str(self.prompt), f"{self.reused} ({share})", str(self.again)


_Asked = tuple[VerdictRow, RequestRow]
_GROUPS: Mapping[str, Callable[[VerdictRow, RequestRow], str]] = {
    "conversation": lambda verdict, row: f"{verdict.scenario} {row.conversation or _NONE}",
    "purpose": lambda _, row: row.purpose or _NONE,
    "adapters": lambda _, row: str(Setting.of(row.setting)),
    "slot choice": lambda _, row: row.chosen or "not told",
}


def sums(run: Run) -> Iterator[str]:
    """What the requests that were answered come to, in groups; the most read again comes first."""
    asked = [(v, row) for v in run.verdicts for row in v.requests if row.prompt_tokens]
    answered = [(verdict, row) for verdict, row in asked if row.cache_n is not None]
    if len(answered) < len(asked):
        yield f"requests without an answer, which are in no sum: {len(asked) - len(answered)}"
        yield ""
    for name, key in _GROUPS.items():
        yield from _table(f"by {name}", answered, key)
        yield ""
    body = [
        (group.cause, str(len(group.steps)), str(group.failed), in_tokens(group.read_again))
        for group in groups(run.verdicts)
    ]
    yield from columns([("by reason", "steps", "failed", "read again"), *body])


def _table(
    title: str, answered: Iterable[_Asked], key: Callable[[VerdictRow, RequestRow], str]
) -> list[str]:
    found: dict[str, _Sum] = {}
    total = _Sum()
    for verdict, row in answered:
        total.add(row)
        found.setdefault(key(verdict, row), _Sum()).add(row)
    ordered = sorted(found.items(), key=lambda item: (-item[1].again, item[0]))
    body = [(name, *group.cells()) for name, group in ordered]
    return columns([(title, *_SUMS_HEAD), *body, ("all", *total.cells())])
