"""Known upstream bugs: which scenario fails how, in which configurations, on which builds."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UsageProblem
from harness.expect import Kind
from harness.ledger import Verdict
from harness.memory import Memory
from harness.models.synthetic.store import MODELS

_BUG_KEYS = {"issue", "title", "what", "commits", "builds", "where"}
_WHERE_KEYS = {"scenario", "configurations", "models", "fails"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A scenario in a configuration, with a generated model, on a build."""

    scenario: str
    """`test_lora.py::test_x`."""
    configuration: str
    """`np1-kvu-completion`, with what else tells variants of the test apart."""
    model: str
    memory: Memory
    commit: str | None
    number: int | None


@dataclass(frozen=True, slots=True)
class KnownBug:
    """One bug in one scenario: the exact set of `step: kind` it shows."""

    issue: str
    """`#30129`, or a name for one that is not reported."""
    title: str
    """The bug in a few words."""
    what: str
    """The bug in one sentence."""
    scenario: str
    """`test_lora.py::test_x`."""
    configurations: tuple[str, ...]
    """Patterns as of `fnmatch`."""
    models: tuple[str, ...]
    """Names or memory kinds of the models it shows with; empty for all."""
    signature: tuple[str, ...]
    commits: tuple[str, ...]
    builds: tuple[int, int] | None
    """First and last build number; only for builds whose number is known."""

    def matches(self, case: Case) -> bool:
        """Whether this entry speaks of that scenario, configuration, model and build."""
        return self.concerns(case) and (self._names(case.commit) or self._covers(case.number))

    def concerns(self, case: Case) -> bool:
        """Whether this entry speaks of that scenario, configuration and model, on any build."""
        return (
            case.scenario == self.scenario
            and (not self.models or bool({case.model, case.memory} & {*self.models}))
            and any(fnmatchcase(case.configuration, pattern) for pattern in self.configurations)
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
        return tuple(_known_bug(bug, where) for bug in data["bug"] for where in bug["where"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UsageProblem(f"{path} is not a list of known bugs: {error!r}") from None


def _known_bug(bug: dict[str, Any], where: dict[str, Any]) -> KnownBug:
    """One entry, every part of it checked: what is misspelt must not just never match."""
    unknown = (bug.keys() - _BUG_KEYS) | (where.keys() - _WHERE_KEYS)
    if unknown:
        raise ValueError(f"unknown keys {sorted(unknown)}")
    return KnownBug(
        issue=_text(bug["issue"]),
        title=_text(bug["title"]),
        what=_text(bug["what"]),
        scenario=_text(where["scenario"]),
        configurations=_texts(where["configurations"]),
        models=_models(where["models"]) if "models" in where else (),
        signature=tuple(sorted(_entry(text) for text in _texts(where["fails"]))),
        commits=_texts(bug["commits"]),
        builds=_range(bug.get("builds")),
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not a text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{value!r} is not a list of texts")
    return tuple(_text(item) for item in value)


def _models(value: object) -> tuple[str, ...]:
    names = _texts(value)
    if unknown := set(names) - {*MODELS, *Memory}:
        raise ValueError(f"no such models or kinds of memory: {sorted(unknown)}")
    return names


def find(bugs: Iterable[KnownBug], case: Case) -> KnownBug | None:
    """The entry for a case; two that match are a mistake in the file."""
    found = [bug for bug in bugs if bug.matches(case)]
    if len(found) > 1:
        raise HarnessError(f"two known bugs match {case}: {found}")
    return found[0] if found else None


def alike(bugs: Iterable[KnownBug], case: Case, signature: Sequence[str]) -> KnownBug | None:
    """The bug that shows in just this way on builds it is known for; for people with others."""
    return next(
        (bug for bug in bugs if bug.concerns(case) and bug.signature == tuple(signature)),
        None,
    )


def conclude(signature: Sequence[str], known: KnownBug | None) -> Verdict:
    """The verdict on a scenario that failed just so, where `known` bugs are accepted."""
    if known is None:
        return Verdict.FAILED if signature else Verdict.HOLDS
    if not signature:
        return Verdict.KNOWN_BUG_GONE
    return Verdict.KNOWN_BUG if tuple(signature) == known.signature else Verdict.FAILED


def _entry(text: str) -> str:
    """`step: kind`, with a kind there is; `ValueError` otherwise."""
    step, _, kind = text.rpartition(": ")
    if not step or kind not in set(Kind):
        raise ValueError(f"{text!r} is not `step: kind`")
    return text


def _range(value: object) -> tuple[int, int] | None:
    if value is None:
        return None
    first, last = (int(number) for number in _text(value).split(".."))
    if first > last:
        raise ValueError(f"{value!r} is not a range")
    return first, last
