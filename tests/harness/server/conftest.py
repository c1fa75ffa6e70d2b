"""A real llama-server with the generated model, and small programs that play one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from harness.builds.build import Build
from harness.models.spec import Model
from harness.models.synthetic.store import generated
from harness.server.config import ServerConfig
from harness.server.guard import Guard
from harness.server.process import READY_SECONDS, LlamaServer, Program

WriteScript = Callable[[str], Path]
"""Writes an executable shell script with this body."""

WriteProgram = Callable[[str], Path]
"""Writes an executable Python program."""


class MakeServer(Protocol):
    """Makes a server that is not started yet; what is not said is as small as it gets."""

    def __call__(
        self,
        config: ServerConfig | None = None,
        *,
        program: Program | None = None,
        guard: Guard | None = None,
        ready_seconds: float = READY_SECONDS,
    ) -> LlamaServer: ...


@pytest.fixture
def program(llama_build: Build) -> Program:
    return llama_build.program


@pytest.fixture(scope="session")
def model() -> Model:
    return generated()


@pytest.fixture
def config(model: Model) -> ServerConfig:
    """One slot, so that what comes back comes from the host-RAM prompt cache."""
    return ServerConfig(model=model.file.path, parallel=1, threads=1, threads_batch=1)


@pytest.fixture
def own_guard() -> Iterator[Guard]:
    """A guard that knows nothing but this test's servers."""
    with Guard() as guard:
        yield guard


@pytest.fixture
def make_server(
    program: Program, config: ServerConfig, own_guard: Guard, tmp_path: Path
) -> MakeServer:
    default_config, default_program = config, program

    def make(
        config: ServerConfig | None = None,
        *,
        program: Program | None = None,
        guard: Guard | None = None,
        ready_seconds: float = READY_SECONDS,
    ) -> LlamaServer:
        return LlamaServer(
            program or default_program,
            config or default_config,
            guard=guard or own_guard,
            log_path=tmp_path / "logs" / "server.log",
            ready_seconds=ready_seconds,
        )

    return make


@pytest.fixture
def write_script(tmp_path: Path) -> WriteScript:
    def write(body: str) -> Path:
        path = tmp_path / "script"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def write_program(tmp_path: Path, write_script: WriteScript) -> WriteProgram:
    def write(source: str) -> Path:
        path = tmp_path / "program.py"
        path.write_text(source)
        # A shebang has no room for the long path of an interpreter.
        return write_script(f"exec '{sys.executable}' -I -S '{path}' \"$@\"")

    return write
