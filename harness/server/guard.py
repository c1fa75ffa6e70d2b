"""Sees to it that no server outlives the harness, however the harness ends."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self

from harness.errors import HarnessError
from harness.server import guard_main


class Guard:
    """A small process beside this one that kills registered process groups when we are gone.

    It notices the end of this process, by its number and by the end of a pipe (which `kill -9`
    closes too, but not while a forked child holds it), and the end of any process in `also_watch`
    (the controller of a pytest-xdist worker, whose workers outlive it). It sits in a session of
    its own and ignores INT, TERM and HUP.
    """

    def __init__(self, also_watch: Iterable[int] = ()) -> None:
        self.session = uuid.uuid4().hex
        """The value of the marker variable in the environment of every process we start."""
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", guard_main.__file__, self.session),
                *(str(pid) for pid in (os.getpid(), *also_watch)),
            ],
            bufsize=0,  # nothing is left to be written when the guard is gone
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath)},
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise HarnessError(
                "the guard process did not start", hint=f"{sys.executable} -I -S must work"
            )

    @property
    def pid(self) -> int:
        """The guard's own process."""
        return self._process.pid

    def add(self, process_group: int) -> None:
        """Kill this group when the harness is gone."""
        self._tell(f"+{process_group}\n")

    def discard(self, process_group: int) -> None:
        """The group has ended; its number may belong to somebody else from now on."""
        self._tell(f"-{process_group}\n")

    def close(self) -> None:
        """Ends the guard, and with it whatever is still registered. Safe to call again."""
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            with suppress(OSError):  # it has been killed
                self._process.stdin.write(b".\n")
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode())
        except OSError as error:
            raise HarnessError(
                "the guard process is gone; no server is started without it",
                hint="run again",
            ) from error
