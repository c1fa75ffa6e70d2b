"""Files on the Hugging Face hub, by what they must be, and how one is had."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageProblem

NO_DOWNLOAD = "the suite's --llama-model=generated needs none; set HF_ENDPOINT for another hub"
"""What a person can do who has no hub."""
_REVISION = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")


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


def fetch(file: HubFile) -> Path:
    """Where the file is in the hub's cache, fetched now unless it is there whole.

    Progress goes to stderr. `HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME`, `HF_HUB_OFFLINE` and proxies are
    honoured; processes that want the same file wait for each other. Raises `UsageProblem` where it
    cannot be had. What the hub sends that is not the file does not stay in the cache.
    """
    try:
        # Here, so that whoever fetches nothing does not load the library.
        from harness.models.download import fetched
    except ValueError as error:  # what the library says of settings it reads at import
        endpoint = os.environ.get("HF_ENDPOINT", "the hub")
        raise UsageProblem(
            without_credentials(f"{file} cannot be fetched from {endpoint}: {error}"),
            hint=NO_DOWNLOAD,
        ) from None
    return fetched(file)


def without_credentials(text: str) -> str:
    """A text whose addresses do not say who asks there, and by what password."""
    return _CREDENTIALS.sub("", text)
