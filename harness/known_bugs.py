"""Known upstream bugs: which scenario fails how, in which configurations, on which builds."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from harness.errors import HarnessError
from harness.ledger import Verdict


@dataclass(frozen=True, slots=True)
class KnownBug:
    """One bug in one scenario: the exact set of `step: kind` it shows."""

    issue: str
    scenario: str
    """`test_lora.py::test_x`."""
    configurations: tuple[str, ...]
    """Patterns as of `fnmatch`, for the bracketed part of a test's id."""
    signature: tuple[str, ...]
    commits: tuple[str, ...]
    builds: tuple[int, int] | None
    """First and last build number; only for builds whose number is known."""

    def matches(
        self, scenario: str, configuration: str, commit: str | None, number: int | None
    ) -> bool:
        """Whether this entry speaks of that scenario, configuration and build."""
        return (
            scenario == self.scenario
            and any(fnmatchcase(configuration, pattern) for pattern in self.configurations)
            and (self._names(commit) or self._covers(number))
        )

    def _names(self, commit: str | None) -> bool:
        # The shorter of the two may be an abbreviation of the other.
        return commit is not None and any(
            commit.startswith(known) or known.startswith(commit) for known in self.commits
        )

    def _covers(self, number: int | None) -> bool:
        return (
            number is not None
            and self.builds is not None
            and (self.builds[0] <= number <= self.builds[1])
        )


def load(path: Path | None = None) -> tuple[KnownBug, ...]:
    """The entries of a file, by default the one that comes with the harness."""
    path = path or Path(__file__).with_name("known_bugs.toml")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return tuple(
            KnownBug(
                issue=bug["issue"],
                scenario=where["scenario"],
                configurations=tuple(where["configurations"]),
                signature=tuple(sorted(where["fails"])),
                commits=tuple(bug["commits"]),
                builds=_range(bug.get("builds")),
            )
            for bug in data["bug"]
            for where in bug["where"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise HarnessError(f"{path} is not a list of known bugs: {error!r}") from None


def find(
    bugs: Iterable[KnownBug],
    scenario: str,
    configuration: str,
    commit: str | None,
    number: int | None,
) -> KnownBug | None:
    """The entry for this scenario on this build; two that match are a mistake in the file."""
    found = [bug for bug in bugs if bug.matches(scenario, configuration, commit, number)]
    if len(found) > 1:
        raise HarnessError(f"two known bugs match {scenario}[{configuration}]: {found}")
    return found[0] if found else None


def conclude(signature: Sequence[str], known: KnownBug | None) -> Verdict:
    """The verdict on a scenario that failed just so, where `known` bugs are accepted."""
    if known is None:
        return Verdict.FAILED if signature else Verdict.HOLDS
    if not signature:
        return Verdict.KNOWN_BUG_GONE
    return Verdict.KNOWN_BUG if tuple(signature) == known.signature else Verdict.FAILED


def _range(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, last = text.split("..")
    return int(first), int(last)
