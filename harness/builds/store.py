"""Builds that were obtained once: a directory each, whole or not there, found again by commit."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import msgspec
import platformdirs
from filelock import FileLock, Timeout

from harness.builds.base import ELSEWHERE, Wanted
from harness.builds.steps import Steps
from harness.errors import HarnessError, NotObtained, UsageProblem
from harness.files import sha256_of
from harness.locks import alone

SCHEMA = 1
_FACTS = "build.json"
_RECENT_SECONDS = 3600.0
"""What was used within this time is not evicted: its path may have been printed just now."""
LIMIT_VARIABLE = "LLAMA_HARNESS_STORE_GIB"
_DEFAULT_LIMIT_GIB = 20.0
GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a build in the store; `build.json` of its directory, written last."""

    schema: int = SCHEMA
    commit: str | None
    number: int | None
    """Where the place it came from, or the binary, is a witness of it."""
    flavours: tuple[str, ...]
    rung: str
    source: str
    repository: str
    """Whose number it has."""
    binary: str
    """Relative to the directory."""
    files: dict[str, str]
    """Every file's sha256."""
    size: int
    """Of all files, in bytes."""
    version: str
    """What `--version` prints."""
    flags: tuple[str, ...] = ()
    compiler: str | None = None
    archive_sha256: str | None = None
    seconds: float = 0.0
    """What it took to obtain."""
    added: float = 0.0
    """Seconds since the epoch."""

    @property
    def title(self) -> str:
        """`b10434 7e4c0a9`, or as much of it as is known."""
        names = (f"b{self.number}" if self.number else "", (self.commit or "")[:12])
        return " ".join(filter(None, names)) or f"sha256 {self.sha256[:12]}"

    @property
    def sha256(self) -> str:
        """Of the binary."""
        return self.files[self.binary]


@dataclass(frozen=True, slots=True)
class Entry:
    """A build in the store."""

    directory: Path
    facts: Facts

    @property
    def binary(self) -> Path:
        """Its llama-server."""
        return self.directory / self.facts.binary

    @property
    def used(self) -> float:
        """When somebody last asked for it, in seconds since the epoch."""
        with suppress(OSError):
            return self._used_file.stat().st_mtime
        return self.facts.added

    @property
    def _used_file(self) -> Path:
        return self.directory / _FACTS

    def touch(self) -> None:
        """It is used now; a store that others own cannot be told, and need not."""
        with suppress(OSError):
            os.utime(self._used_file)

    def is_whole(self) -> bool:
        """Whether every file is what it was: in most builds the libraries are the server."""
        if not os.access(self.binary, os.X_OK):
            return False
        try:
            return all(sha256_of(self.directory / n) == s for n, s in self.facts.files.items())
        except OSError:
            return False


def held(binary: Path) -> Facts | None:
    """What is known of a binary by its path, where it is one in a store.

    Nobody removes it as long as this process lives.
    """
    for directory in binary.parents:
        if (entry := _entry(directory)) and entry.binary == binary:
            Store(directory).hold(entry)
            return entry.facts
    return None


def home() -> Path:
    """Where builds, sources and downloads are kept, in the user's cache directory."""
    return platformdirs.user_cache_path("llama-cache-harness") / "builds"


def limit_bytes(environ: Mapping[str, str]) -> int:
    """How large the store may grow. Raises `UsageProblem` where the variable is no number."""
    said = environ.get(LIMIT_VARIABLE)
    try:
        return in_bytes(said) if said else int(_DEFAULT_LIMIT_GIB * GIB)
    except ValueError:
        raise UsageProblem(f"{LIMIT_VARIABLE}={said} is no number of GiB") from None


def in_bytes(gib: str) -> int:
    """A size that a person writes in GiB. Raises `ValueError` for what is none."""
    size = float(gib)
    if not 0 <= size < 1e6:
        raise ValueError(gib)
    return int(size * GIB)


class Store:
    """Whole builds below a directory. Several processes may use one at once.

    What was found or added is not removed by anybody until `close`, or the end of this process.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or home()
        self._leases: list[int] = []
        """Open files with a shared lock."""

    def close(self) -> None:
        """Builds may be removed from now on. Safe to call again."""
        while self._leases:
            os.close(self._leases.pop())

    @property
    def _builds(self) -> Path:
        return self.root / "store"

    @property
    def _filling(self) -> Path:
        return self.root / "filling"

    def entries(self) -> list[Entry]:
        """All that are whole by their facts, the one used last first."""
        if not self._builds.is_dir():
            return []
        found = (_entry(directory) for directory in self._builds.iterdir())
        return sorted(filter(None, found), key=lambda entry: -entry.used)

    def find(self, wanted: Wanted, rung: str | None = None) -> Entry | None:
        """A build that is what is wanted, from any rung or a given one; damaged ones are removed.

        Raises `UsageProblem` where a short commit may be one of several.
        """
        found = [
            entry
            for entry in self.entries()
            if (rung is None or entry.facts.rung == rung) and _is(entry.facts, wanted)
        ]
        commits = {entry.facts.commit for entry in found if entry.facts.commit}
        longest = max(commits, key=len, default="")
        if not all(same_commit(commit, longest) for commit in commits):
            names = ", ".join(sorted(commits))
            raise UsageProblem(f"{wanted.ref} is ambiguous: {names}", hint="give more digits")
        for entry in found:
            if not entry.is_whole():
                self._remove(entry.directory)
            elif self.hold(entry):
                entry.touch()
                return entry
        return None

    @contextmanager
    def filling(self) -> Iterator[Path]:
        """A directory to put a build into, on the disk of the store; gone in the end.

        What others left behind who were killed is swept away.
        """
        try:
            self._sweep()
            with self._own_directory() as directory:
                yield directory
        except OSError as error:
            raise unwritable(self.root, error) from None

    @contextmanager
    def lock(self, name: str, steps: Steps, doing: str) -> Iterator[None]:
        """One process at a time does what has this name; who has to wait is told for what."""
        waiting = f"another process is {doing}; waiting for it"
        with ExitStack() as stack:
            try:
                file = self.root / "locks" / f"{name}.lock"
                stack.enter_context(alone(file, lambda: steps.say(waiting)))
            except (OSError, NotImplementedError) as error:
                raise unwritable(self.root, error) from None
            yield

    def add(self, directory: Path, facts: Facts) -> Entry:
        """Takes over a filled directory as one: others see all of it or nothing."""
        try:
            text = json.dumps(msgspec.to_builtins(facts), indent=2)
            with (directory / _FACTS).open("w") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            self._builds.mkdir(parents=True, exist_ok=True)
            place = self._builds / _name(facts)
            with self.lock("store", Steps("store"), "adding a build"):
                theirs = _entry(place)
                if theirs is not None and theirs.is_whole() and self.hold(theirs):
                    return theirs  # somebody came the same way by another name
                if os.path.lexists(place):  # damaged, or not readable by this version
                    self._throw_away(place)
                self.hold(Entry(directory, facts))  # which goes with it
                directory.rename(place)
                return Entry(place, facts)
        except OSError as error:
            raise unwritable(self.root, error) from None

    def prune(self, limit: int, *, recent: float = _RECENT_SECONDS) -> list[Entry]:
        """Removes what was not used for longest until the rest is within `limit` bytes.

        What is in use, or was used within `recent` seconds, stays. What was removed.
        """
        entries = self.entries()
        size, now = sum(entry.facts.size for entry in entries), time.time()
        removed = []
        for entry in reversed(entries):
            if size <= limit:
                break
            if now - entry.used >= recent and self._remove(entry.directory):
                removed.append(entry)
                size -= entry.facts.size
        return removed

    def clean(self) -> None:
        """Removes what no build is: what killed processes left, and what cannot be read."""
        self._sweep()
        for directory in self._builds.iterdir() if self._builds.is_dir() else ():
            if _entry(directory) is None:
                self._remove(directory)
        with suppress(Timeout), FileLock(self.root / "locks" / "source.lock", timeout=0):
            shutil.rmtree(self.root / "source", ignore_errors=True)
        for part in (self.root / "downloads").glob("*.part"):
            with suppress(Timeout), FileLock(part.with_suffix(".lock"), timeout=0):
                part.with_suffix(".etag").unlink(missing_ok=True)
                part.unlink(missing_ok=True)

    def hold(self, entry: Entry) -> bool:
        """Keeps a build from being removed; False where it has just been."""
        try:
            file = os.open(entry.directory / _FACTS, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        self._leases.append(file)
        try:
            fcntl.flock(file, fcntl.LOCK_SH)
            return os.path.samestat(os.fstat(file), (entry.directory / _FACTS).stat())
        except OSError:
            return False

    def _remove(self, directory: Path) -> bool:
        """Removes a build unless somebody holds it, be it of another version's making."""
        try:
            with ExitStack() as stack:
                if (directory / _FACTS).is_file():
                    file = stack.enter_context((directory / _FACTS).open("rb"))
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._throw_away(directory)
        except OSError:
            return False
        return True

    def _throw_away(self, directory: Path) -> None:
        """Out of sight as one, then removed: a kill meanwhile leaves nothing half."""
        with self._own_directory() as beside:
            directory.rename(beside / directory.name)

    @contextmanager
    def _own_directory(self) -> Iterator[Path]:
        """A directory beside the builds that nobody sweeps away while we live."""
        self._filling.mkdir(parents=True, exist_ok=True)
        directory = self._filling / uuid.uuid4().hex
        lock = Path(f"{directory}.lock")
        with FileLock(lock):
            directory.mkdir()
            try:
                yield directory
            finally:
                shutil.rmtree(directory, ignore_errors=True)
                lock.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Removes what was being filled by a process that is gone."""
        if not self._filling.is_dir():
            return
        for directory in self._filling.iterdir():
            if not directory.is_dir():
                continue
            lock = FileLock(f"{directory}.lock")
            with suppress(Timeout), lock.acquire(timeout=0):
                shutil.rmtree(directory, ignore_errors=True)
                Path(f"{directory}.lock").unlink(missing_ok=True)


def unwritable(root: Path, error: OSError | NotImplementedError) -> HarnessError:
    """What is said where builds cannot be kept."""
    if isinstance(error, NotImplementedError):
        return UsageProblem(f"{root} is on a file system without locks", hint=ELSEWHERE)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return NotObtained(
            f"the disk of {root} is full",
            hint=f"llama-harness builds prune makes room; {ELSEWHERE}",
        )
    return UsageProblem(f"builds cannot be kept in {root}: {error.strerror}", hint=ELSEWHERE)


def _entry(directory: Path) -> Entry | None:
    """A directory's build; None where it has no facts that this version can read."""
    try:
        data: Any = json.loads((directory / _FACTS).read_text())
        facts = msgspec.convert(data, Facts)
    except (OSError, ValueError, RecursionError, msgspec.ValidationError):
        return None
    binary = PurePath(facts.binary)
    inside = not binary.is_absolute() and ".." not in binary.parts
    known = facts.schema == SCHEMA and inside and facts.binary in facts.files
    return Entry(directory, facts) if known else None


def _name(facts: Facts) -> str:
    """A directory's name: what it is, for which flavours, and where it came from."""
    number = f"b{facts.number}" if facts.number else f"sha256-{facts.sha256[:12]}"
    who = facts.commit[:12] if facts.commit else number
    return f"{who}-{'+'.join(facts.flavours)}-{facts.rung}"


def _is(facts: Facts, wanted: Wanted) -> bool:
    """Whether a build is the one that is wanted; a commit is a better name than a number."""
    if wanted.flavour not in facts.flavours:
        return False
    if wanted.commit is not None and facts.commit is not None:
        return same_commit(wanted.commit, facts.commit)
    numbered = wanted.number is not None and wanted.number == facts.number
    return numbered and wanted.repository == facts.repository


def same_commit(one: str, other: str) -> bool:
    """Whether two commits are the same, either of which may be short."""
    return one.startswith(other) or other.startswith(one)
