"""Other programs on the way to a build: git, pip, CMake. Logged, and gone when we are."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.builds.base import ELSEWHERE, NotHere
from harness.server.environment import SESSION_MARKER
from harness.server.guard import Guard
from harness.urls import without_credentials

_OURS = {
    "LC_ALL": "C",  # what they say is read
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
}
# What a hook or another repository around us has set would decide which repository is meant.
_NOT_THEIRS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")


_LOOK_SECONDS = 0.5
"""How often the output of a program that is watched is looked at."""
_DISK_FULL = re.compile(r": (No space left on device|Disk quota exceeded)")
_PREFIX = re.compile(r"^(fatal|error|ERROR): (unable to access '\S+': )?")
"""What programs begin with to say that it is an error, and what is known."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a program ended, and what it said on stdout and stderr."""

    returncode: int
    text: str

    @property
    def ok(self) -> bool:
        """Whether it did what it was to."""
        return self.returncode == 0

    @property
    def last_line(self) -> str:
        """The last thing it said."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return lines[-1] if lines else f"no output, exit code {self.returncode}"

    @property
    def error(self) -> str:
        """Why it failed: the last line that says it is an error, where there is one."""
        lines = [line.strip() for line in self.text.splitlines()]
        errors = [line for line in lines if _PREFIX.match(line)]
        return _PREFIX.sub("", errors[-1] if errors else self.last_line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs programs, and writes what they say into `log` after their command lines."""

    guard: Guard
    log: Path
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def run(
        self,
        *command: str | Path,
        seconds: float | None = None,
        watch: Callable[[str], None] | None = None,
    ) -> Result:
        """Run a program to its end and return its whole output.

        `watch` is called every half second with the output since its last call, also where there
        is none. Raises `NotHere` where the program cannot be run, or has not ended in `seconds`.
        """
        words = [str(word) for word in command]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # What git says may have a password in it.
        with open(self.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
            log.write(f"$ {without_credentials(shlex.join(words))}\n".encode())
            log.flush()
            start = log.tell()
            process = self._started(words, log.fileno())
            look = self._look(watch, start) if watch else None
            returncode = self._ended(process, words[0], seconds, look)
        with self.log.open("rb") as log:
            log.seek(start)
            result = Result(returncode, log.read().decode(errors="replace"))
        if returncode != 0 and _DISK_FULL.search(result.text):
            raise NotHere("the disk is full", hint=ELSEWHERE, trouble=True)
        return result

    def _started(self, words: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        kept = {key: text for key, text in self.environ.items() if key not in _NOT_THEIRS}
        try:
            return subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=kept | _OURS | {SESSION_MARKER: self.guard.session},
                start_new_session=True,
            )
        except OSError as error:
            raise NotHere(f"{words[0]} cannot be run: {error.strerror}", trouble=True) from None

    def _look(self, watch: Callable[[str], None], start: int) -> Callable[[], None]:
        """Make a function that hands on what was written into the log since it was last called."""
        position = start

        def look() -> None:
            nonlocal position
            with self.log.open("rb") as log:
                log.seek(position)
                new = log.read()
            position += len(new)
            watch(new.decode(errors="replace"))

        return look

    def _ended(
        self,
        process: subprocess.Popen[bytes],
        name: str,
        seconds: float | None,
        look: Callable[[], None] | None,
    ) -> int:
        """Wait for a program's end, looking at its output meanwhile; return its exit code."""
        self.guard.add(process.pid)
        try:
            return _waited(process, seconds, look)
        except subprocess.TimeoutExpired:
            raise NotHere(
                f"{Path(name).name} gave no answer in {seconds:g} s", trouble=True
            ) from None
        finally:
            if process.returncode is None:  # interrupted, too
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self.guard.discard(process.pid)


def _waited(
    process: subprocess.Popen[bytes], seconds: float | None, look: Callable[[], None] | None
) -> int:
    """Wait for a program's end. Raises `subprocess.TimeoutExpired` after `seconds`."""
    if look is None:
        return process.wait(seconds)
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        left = _LOOK_SECONDS if deadline is None else deadline - time.monotonic()
        try:
            return process.wait(min(max(left, 0), _LOOK_SECONDS))
        except subprocess.TimeoutExpired:
            if deadline is not None and time.monotonic() >= deadline:
                raise
            look()


def installed(program: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Where a program is that is on the PATH."""
    return shutil.which(program, path=environ.get("PATH"))
