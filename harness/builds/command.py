"""Other programs on the way to a build: git, pip, CMake. Logged, and gone when we are."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
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

    def run(self, *command: str | Path, seconds: float | None = None) -> Result:
        """The whole output, once it has ended. Raises `NotHere` where it cannot be run or hangs."""
        words = [str(word) for word in command]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # What git says may have a password in it.
        with open(self.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
            log.write(f"$ {without_credentials(shlex.join(words))}\n".encode())
            log.flush()
            start = log.tell()
            returncode = self._ended(self._started(words, log.fileno()), words[0], seconds)
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

    def _ended(self, process: subprocess.Popen[bytes], name: str, seconds: float | None) -> int:
        self.guard.add(process.pid)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise NotHere(
                f"{Path(name).name} gave no answer in {seconds:g} s", trouble=True
            ) from None
        finally:
            if process.returncode is None:  # interrupted, too
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self.guard.discard(process.pid)


def installed(program: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Where a program is that is on the PATH."""
    return shutil.which(program, path=environ.get("PATH"))
