"""How a person names a build: one grammar for every command and for `--llama-ref`."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from harness.errors import UsageProblem

GRAMMAR = (
    "a path with a '/', b11434, a commit of 7 to 40 hex digits, PR#30275 or pull/30275/head "
    "(PR#30275@COMMIT freezes it), master, master~50, wheel:0.10434.0, sdist:b11434"
)
"""All forms of a ref, in one line."""

MASTER = "master"


@dataclass(frozen=True, slots=True)
class PathRef:
    """A binary on this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class NumberRef:
    """A build by upstream's number, which is its tag."""

    number: int

    def __str__(self) -> str:
        return f"b{self.number}"


@dataclass(frozen=True, slots=True)
class CommitRef:
    """A commit, or the beginning of one."""

    commit: str

    def __str__(self) -> str:
        return self.commit


@dataclass(frozen=True, slots=True)
class PullRef:
    """The head of a pull request, or the commit that it is held at."""

    number: int
    commit: str | None = None

    def __str__(self) -> str:
        return f"PR#{self.number}" + (f"@{self.commit}" if self.commit else "")


@dataclass(frozen=True, slots=True)
class MasterRef:
    """Upstream's main branch, or so many commits before its end."""

    back: int = 0

    def __str__(self) -> str:
        return MASTER + (f"~{self.back}" if self.back else "")


@dataclass(frozen=True, slots=True)
class WheelRef:
    """A version of the prebuilt wheel."""

    version: str

    @property
    def number(self) -> int:
        """Its build number: versions are 0.BUILD.0."""
        return int(self.version.split(".")[1])

    def __str__(self) -> str:
        return f"wheel:{self.version}"


@dataclass(frozen=True, slots=True)
class SdistRef:
    """Upstream's source as it was published as a Python package."""

    number: int

    def __str__(self) -> str:
        return f"sdist:b{self.number}"


Ref = PathRef | NumberRef | CommitRef | PullRef | MasterRef | WheelRef | SdistRef

# A build number has up to six digits, so that a longer one is a commit.
_NUMBER = re.compile(r"b([0-9]{1,6})")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_PULL = re.compile(r"(?:PR#([0-9]{1,9})|pull/([0-9]{1,9})/head)(?:@([0-9a-f]{7,40}))?")
_MASTER = re.compile(r"master(?:~([0-9]{1,9}))?")
_WHEEL = re.compile(r"wheel:(0\.[0-9]{1,6}\.0)")
_SDIST = re.compile(r"sdist:b([0-9]{1,6})")
_PATH = re.compile(r"[./~]|.*/")


def parse(text: str) -> Ref:
    """The build that a text names. Raises `UsageProblem`, with the grammar and what is nearest."""
    if match := _PULL.fullmatch(text):
        return PullRef(int(match[1] or match[2]), match[3])
    if match := _NUMBER.fullmatch(text):
        return NumberRef(int(match[1]))
    if _COMMIT.fullmatch(text):
        return CommitRef(text)
    if match := _MASTER.fullmatch(text):
        return MasterRef(int(match[1] or 0))
    if match := _WHEEL.fullmatch(text):
        return WheelRef(match[1])
    if match := _SDIST.fullmatch(text):
        return SdistRef(int(match[1]))
    nearest = _slip(text)
    if _PATH.match(text) and (nearest is None or _exists(text)):
        return PathRef(_path(text))
    nearest = nearest or _similar(text)
    meant = f"did you mean {nearest}? " if nearest else ""
    raise UsageProblem(f"{text!r} names no build", hint=f"{meant}a ref is {GRAMMAR}")


# What people write instead, and what they mean by it.
_SLIPS = (
    (re.compile(r"(?:pr|pull|#|gh)[-#/ ]*(\d+)", re.IGNORECASE), "PR#{0}"),
    (re.compile(r"(?:https?://)?github\.com/[\w.-]+/[\w.-]+/pull/(\d+).*"), "PR#{0}"),
    (re.compile(r"(?:refs/)?pull/(\d+)(?:/\w*)?"), "PR#{0}"),
    (re.compile(r"(?:https?://)?github\.com/.*/commit/([0-9a-f]{7,40})"), "{0}"),
    (re.compile(r"(?:https?://)?github\.com/.*/releases/tag/(b\d+)"), "{0}"),
    (re.compile(r"(?:build[- ]?)?[bB]?[- ]?(\d{1,6})", re.IGNORECASE), "b{0}"),
    (
        re.compile(r"(?:origin/|upstream/)?(?:main|master|head)(?:[~^](\d+))", re.IGNORECASE),
        "master~{0}",
    ),
    (re.compile(r"(?:origin/|upstream/)?(?:main|master|head|latest)", re.IGNORECASE), "master"),
    (re.compile(r"wheel[:@= ]*(?:0\.)?b?(\d{1,6})(?:\.\d+)?", re.IGNORECASE), "wheel:0.{0}.0"),
    (re.compile(r"sdist[:@= ]*(?:0\.)?b?(\d{1,6})(?:\.0)*", re.IGNORECASE), "sdist:b{0}"),
    (re.compile(r"([0-9a-fA-F]{7,40})"), "{0}"),
)


def _slip(text: str) -> str | None:
    """What a person means who writes this."""
    for slip, meant in _SLIPS:
        if match := slip.fullmatch(text.strip()):
            return meant.format(*(group.lower() for group in match.groups()))
    return None


def _similar(text: str) -> str | None:
    """What a person may have meant who wrote this."""
    if _exists(text):  # something that stands right here
        return f"./{text}"
    if found := shutil.which(text) if text else None:
        return found
    words = ["master", "wheel:0.10434.0", "sdist:b11434", "pull/30275/head"]
    return next(iter(get_close_matches(text.lower(), words, n=1, cutoff=0.7)), None)


def _exists(text: str) -> bool:
    try:
        return bool(text) and _path(text).exists()
    except (OSError, ValueError):  # longer than any name, or none
        return False


def _path(text: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(text)))  # noqa: PTH100, PTH111  # raise nothing
