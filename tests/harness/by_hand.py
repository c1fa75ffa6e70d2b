"""Servers started as a person does it, with no help of what starts the harness's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.server.environment import hermetic_environment
from harness.server.guard import Guard
from harness.server.log import ServerLog
from tests.harness.server.processes import Identity, until


@dataclass(frozen=True, slots=True)
class Started:
    """A server by its address and its process."""

    url: str
    identity: Identity

    @property
    def pid(self) -> int:
        return self.identity.pid


class ByHand:
    """Starts programs that say in llama-server's words where they listen."""

    def __init__(self, guard: Guard, directory: Path, stack: ExitStack) -> None:
        self._guard = guard
        self._directory = directory
        self._stack = stack
        self._count = 0

    def __call__(
        self, *command: str, cwd: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> Started:
        self._count += 1
        path = self._directory / f"by-hand-{self._count}.log"
        return self._stack.enter_context(self._running(command, path, cwd, environ or {}))

    @contextmanager
    def _running(
        self, command: tuple[str, ...], path: Path, cwd: Path | None, environ: Mapping[str, str]
    ) -> Iterator[Started]:
        own = hermetic_environment(os.environ, self._guard.session)
        with path.open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**own, **environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._guard.add(process.pid)
        try:
            log_file = ServerLog(path)
            until(lambda: log_file.announced_port() is not None, f"{command[0]} listens")
            url = f"http://127.0.0.1:{log_file.announced_port()}"
            yield Started(url, Identity.of(process.pid))
        finally:
            process.kill()
            process.wait()
            self._guard.discard(process.pid)
