"""What one run of the suite says of each scenario, all its configurations together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from harness.ledger import Run, Verdict, VerdictRow


class Status(StrEnum):
    """The outcome of a scenario, the worst first."""

    FAILS = "FAILS"
    """The scenario fails in some configuration."""
    ACCEPTED = "ACCEPTED"
    """The scenario fails in some configuration, as a known bug does that is accepted."""
    HOLDS = "HOLDS"
    """The scenario holds wherever it reached a verdict."""
    ERROR = "ERROR"
    """The scenario reached no verdict, since the server or the harness had other trouble."""
    NOT_TESTED = "NOT TESTED"
    """The scenario needs other flags, in all configurations."""


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
    """Return the same run, where a failure is a known bug if its issue is accepted, else none.

    What the run itself took for a known bug has no say: pytest expects those of its own wheel.
    """
    failures = (Verdict.FAILED, Verdict.KNOWN_BUG)
    kinds = {True: Verdict.KNOWN_BUG, False: Verdict.FAILED}
    rows = (
        replace(row, verdict=kinds[row.issue in issues]) if row.verdict in failures else row
        for row in run.verdicts
    )
    return replace(run, verdicts=tuple(rows))


_AT_START = re.compile(r"\S+ does not start\b")
"""What the first scenario says whose server does not start; the others are not tested for it."""
_CLASH = re.compile(r"needs (?P<needs>.+), (?:args|--llama-arg) gives (?P<given>.+)")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The configurations that one flag of the user's leaves out."""

    flag: str
    """The flag as given, with its value."""
    needs: str
    """What these configurations need instead."""
    configurations: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """Configurations that reached no verdict for the same error."""

    reason: str
    at_start: bool
    """Whether servers ended before they answered; these are told apart by model alone."""
    rows: tuple[VerdictRow, ...]
    models: tuple[str, ...]
    """Models of which every configuration that was tried had this error."""

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The scenarios it concerns."""
        return tuple(dict.fromkeys(row.scenario for row in self.rows))


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
        """The worst verdict among its configurations; an error hides none."""
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
    def rows(self) -> tuple[VerdictRow, ...]:
        """All configurations of all scenarios."""
        return tuple(row for outcome in self.outcomes for row in outcome.rows)

    @property
    def may_deploy(self) -> bool | None:
        """Whether all that was tested holds or is accepted; None where that cannot be said.

        An error never passes: nobody knows what the server does there.
        """
        if self.configurations(Status.FAILS):
            return False
        good = self.configurations(Status.HOLDS) + self.configurations(Status.ACCEPTED)
        return True if good and not self.configurations(Status.ERROR) else None

    @property
    def known_bugs(self) -> tuple[str, ...]:
        """The issues that failures look like which are not accepted."""
        failing = (row for row in self.rows if status_of(row) is Status.FAILS)
        return tuple(sorted({row.issue for row in failing if row.issue}))

    @property
    def unknown_failures(self) -> int:
        """How many scenarios fail in some configuration as no known bug does."""
        return sum(
            any(row.issue is None for row in outcome.those(Status.FAILS))
            for outcome in self.outcomes
        )

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """The errors, each with all configurations that had it."""
        tried = [row for row in self.rows if status_of(row) is not Status.NOT_TESTED]
        whole = Counter(row.model for row in tried)
        found: dict[str, list[VerdictRow]] = {}
        for row in tried:
            if status_of(row) is Status.ERROR:
                found.setdefault(row.reason or "error", []).append(row)
        return tuple(
            Trouble(
                reason=reason,
                at_start=_AT_START.match(reason) is not None,
                rows=(*rows, *(row for row in self._untested if row.reason == reason)),
                models=tuple(
                    model
                    for model, count in Counter(row.model for row in rows).items()
                    if count == whole[model]
                ),
            )
            for reason, rows in found.items()
        )

    @property
    def _untested(self) -> tuple[VerdictRow, ...]:
        return tuple(row for one in self.outcomes for row in one.those(Status.NOT_TESTED))

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """What each flag of the user's leaves out, the most first."""
        found = Counter(
            (match["given"], match["needs"])
            for reason, count in self.not_tested.items()
            if (match := _CLASH.fullmatch(reason))
            for _ in range(count)
        )
        return tuple(LeftOut(*key, count) for key, count in found.most_common())

    @property
    def not_testable(self) -> Mapping[str, int]:
        """Why configurations were not tested for other reasons than a flag, and how many."""
        return {r: n for r, n in self.not_tested.items() if not _CLASH.fullmatch(r)}

    @property
    def not_tested(self) -> Mapping[str, int]:
        """Why configurations were not tested but for an error, and how many for each reason."""
        errors = {trouble.reason for trouble in self.troubles}
        return reasons_of(row for row in self._untested if row.reason not in errors)


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
