"""What one run of the suite says of each scenario, all its configurations together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from harness.ledger import Run, Verdict, VerdictRow


class Status(StrEnum):
    """What came of a scenario, the worst first."""

    FAILS = "FAILS"
    """In some configuration."""
    ERROR = "ERROR"
    """No verdict in some configuration, since the server or the harness had other trouble."""
    ACCEPTED = "ACCEPTED"
    """In some configuration, just as a known bug does that is accepted."""
    HOLDS = "HOLDS"
    """Wherever it was tested."""
    NOT_TESTED = "NOT TESTED"
    """Nowhere tested."""


def status_of(row: VerdictRow) -> Status:
    """Of one configuration. What was found before an error was found."""
    if row.verdict is Verdict.KNOWN_BUG:
        return Status.ACCEPTED
    if row.signature:
        return Status.FAILS
    if row.verdict is Verdict.ERROR:
        return Status.ERROR
    return Status.HOLDS if row.verdict.reached else Status.NOT_TESTED


def accepting(run: Run, issues: Collection[str]) -> Run:
    """The same run, where what looks like one of these issues is a known bug."""
    rows = (
        replace(row, verdict=Verdict.KNOWN_BUG)
        if row.verdict is Verdict.FAILED and row.issue in issues
        else row
        for row in run.verdicts
    )
    return replace(run, verdicts=tuple(rows))


def reasons_of(rows: Iterable[VerdictRow]) -> Mapping[str, int]:
    """Each reason not to be tested with how many have it, the most frequent first.

    A configuration may have several.
    """
    reasons = (row.reason or row.verdict.value for row in rows)
    return dict(Counter(one for all in reasons for one in all.split("; ")).most_common())


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one scenario."""

    scenario: str
    rows: tuple[VerdictRow, ...]

    def those(self, status: Status) -> tuple[VerdictRow, ...]:
        """The configurations it came out like that in."""
        return tuple(row for row in self.rows if status_of(row) is status)

    @property
    def status(self) -> Status:
        """The worst of its configurations."""
        return next(status for status in Status if self.those(status))


@dataclass(frozen=True, slots=True)
class Check:
    """Of all scenarios, the worst first."""

    outcomes: tuple[Outcome, ...]

    def scenarios(self, status: Status) -> int:
        """How many scenarios came out like that."""
        return sum(outcome.status is status for outcome in self.outcomes)

    def configurations(self, status: Status) -> int:
        """In how many configurations of all scenarios it came out like that."""
        return sum(len(outcome.those(status)) for outcome in self.outcomes)

    @property
    def not_tested(self) -> Mapping[str, int]:
        """Why configurations were not tested, and how many of them for each reason."""
        return reasons_of(row for one in self.outcomes for row in one.those(Status.NOT_TESTED))


def check(run: Run) -> Check:
    """What a run says of each scenario."""
    rows: dict[str, list[VerdictRow]] = {}
    for row in run.verdicts:
        rows.setdefault(row.scenario, []).append(row)
    outcomes = (Outcome(name, tuple(sorted(its, key=_where))) for name, its in rows.items())
    worst = list(Status)
    return Check(tuple(sorted(outcomes, key=lambda o: (worst.index(o.status), o.scenario))))


def _where(row: VerdictRow) -> tuple[str, str]:
    return row.model, row.configuration
