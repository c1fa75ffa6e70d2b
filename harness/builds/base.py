"""What all places that a build can come from have in common."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from harness.builds.ref import Ref
from harness.builds.steps import Steps

UPSTREAM = "https://github.com/ggml-org/llama.cpp"
"""Where upstream's source and its releases are."""


ELSEWHERE = "XDG_CACHE_HOME names another place"
"""What a person can do whose disk is full, or may not be written."""


class Flavour(StrEnum):
    """What a build computes on. Every one can compute on the CPU too."""

    CPU = "cpu"
    CUDA = "cuda"
    VULKAN = "vulkan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A build as it is looked for: by its commit, its number, or both."""

    ref: Ref
    flavour: Flavour = Flavour.CPU
    commit: str | None = None
    """40 hex digits, or the beginning of them."""
    number: int | None = None
    repository: str = UPSTREAM
    """Whose number it is: a fork counts as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What was put into a directory, and what is known of it beside what the binary says."""

    binary: Path
    """Relative to the directory."""
    source: str
    """What it was taken or made from, in words: an address, a package and version, a commit."""
    repository: str = UPSTREAM
    """Whose number it has."""
    commit: str | None = None
    """Where the place is a witness of it: 40 hex digits if possible."""
    number: int | None = None
    """The same."""
    also: tuple[Flavour, ...] = ()
    """Flavours it has beside the one that was wanted."""
    flags: tuple[str, ...] = ()
    """What CMake was told."""
    compiler: str | None = None
    archive_sha256: str | None = None


class NotHere(Exception):
    """A place does not have a build; the message says why, in a few words."""

    def __init__(self, reason: str, *, hint: str = "", trouble: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.trouble = trouble
        """Whether it might have it all the same: the network or this machine is what failed."""


class Unsuitable(NotHere):
    """A place has the build, and it is no llama-server that can be tested: so have all others."""


class NotForThisCpu(NotHere):
    """A place has the build, compiled for another CPU; another place may have it for this one."""


class DoesNotBuild(Exception):
    """The source was there, and a compiler refused it; the message is its first error."""

    def __init__(self, error: str, log: Path) -> None:
        super().__init__(error)
        self.error = error
        self.log = log


class Rung(Protocol):
    """A place that builds can come from."""

    @property
    def name(self) -> str:
        """One word, for tables and for the store."""

    def deliver(self, wanted: Wanted, into: Path, steps: Steps) -> Delivery:
        """Puts the build into an empty directory; raises `NotHere` or `DoesNotBuild`.

        What it leaves in the directory when it raises is thrown away.
        """

    def numbers(self, wanted: Wanted, steps: Steps) -> frozenset[int]:
        """List the numbers of builds that the place has, of the kind that is wanted.

        Raises `NotHere` where the place cannot be asked, or does not know about that number.
        """
