"""A file on the Hugging Face hub, by what it must be; and what is said where it cannot be had."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.errors import UsageProblem

NO_DOWNLOAD = "the suite's --llama-model=generated needs none; set HF_ENDPOINT for another hub"
"""What a person can do who has no hub."""
_REVISION = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository (`owner/name`) at a commit (40 hex digits), and what it must be.

    Raises `UsageProblem` for a revision that is no commit (a branch may move), or no hash.
    """

    repo: str
    revision: str
    name: str
    sha256: str
    size: int | None = None
    """Bytes; None where it is not known beforehand."""

    def __post_init__(self) -> None:
        if not _REVISION.fullmatch(self.revision):
            raise UsageProblem(
                f"{self.revision!r} is no commit", hint="40 hex digits; a branch may move"
            )
        if not _SHA256.fullmatch(self.sha256):
            raise UsageProblem(f"{self.sha256!r} is no sha256", hint="64 hex digits")

    def __str__(self) -> str:
        return f"{self.repo}/{self.name} at {self.revision[:8]}"
