"""Steps in groups of one reason each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.cause import Cause
from harness.ledger import RequestRow, VerdictRow


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
        """Tokens; None where the reason is not why they were."""
        return sum(row.read_again for _, row in self.steps) if self.cause.of_loss else None


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


def in_tokens(number: int | None) -> str:
    """A number; a dash where there is none."""
    return "-" if number is None else str(number)
