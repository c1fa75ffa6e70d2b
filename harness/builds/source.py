"""Builds from upstream's own source, at any commit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from harness.builds.base import Delivery, NotHere, Wanted
from harness.builds.cmake import Version, Workshop
from harness.builds.ref import CommitRef, NumberRef
from harness.builds.steps import Steps
from harness.builds.upstream import Upstream


@dataclass(frozen=True, slots=True)
class SourceRung:
    """Checks a commit out and builds its server."""

    upstream: Upstream
    workshop: Workshop
    name: str = "source"

    def deliver(self, wanted: Wanted, into: Path, steps: Steps) -> Delivery:
        """See `Rung`."""
        commit = self.upstream.resolve(_ref(wanted), steps)
        number = wanted.number if commit.number is None else commit.number
        version = Version(commit=commit.name, number=number)
        with self.workshop.cleared(steps) as tree:
            self.upstream.check_out(commit.name, tree, steps)
            built = self.workshop.build(wanted.flavour, version, into=into, steps=steps)
        repository = self.upstream.shown
        return replace(built, source=f"{repository} at {commit.name}", repository=repository)

    def numbers(self, wanted: Wanted, steps: Steps) -> frozenset[int]:
        """See `Rung`."""
        return self.upstream.numbers(steps)


def _ref(wanted: Wanted) -> CommitRef | NumberRef:
    if wanted.commit is not None:
        return CommitRef(wanted.commit)
    if wanted.number is not None:
        return NumberRef(wanted.number)
    raise NotHere("neither a commit nor a number")
