"""Steps in groups of one reason each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.ledger import RequestRow, VerdictRow
from harness.reasons.cause import Cause


@dataclass(slots=True)
class Group:
    """The steps of one reason."""

    cause: Cause
    steps: list[tuple[VerdictRow, RequestRow]] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """How many of them failed."""
        return sum(bool(row.failures) for _, row in self.steps)

    @property
    def read_again(self) -> int | None:
        """Tokens; None where the reason is not about tokens that were read again."""
        told = [row.read_again for _, row in self.steps if row.cache_n is not None]
        return None if self.cause.of_origin or not told else sum(told)


def groups(verdicts: Iterable[VerdictRow], *, only_failed: bool = False) -> list[Group]:
    """The steps that have a reason: what was wrongly reused first, then what cost most."""
    found: dict[Cause, Group] = {}
    for verdict in verdicts:
        for row in verdict.requests:
            if row.reason and (row.failures or not only_failed):
                group = found.setdefault(row.reason.cause, Group(row.reason.cause))
                group.steps.append((verdict, row))
    return sorted(found.values(), key=_place)


def _place(group: Group) -> tuple[bool, int, int]:
    return not group.cause.of_origin, -(group.read_again or 0), -len(group.steps)


def shown(tokens: int | None) -> str:
    """A number of tokens; a dash where there is none to show."""
    return "-" if tokens is None else str(tokens)
