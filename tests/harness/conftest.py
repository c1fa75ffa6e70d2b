"""What the tests of the harness share."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.builds.build import Build
from harness.server.guard import Guard
from tests.harness.by_hand import ByHand


@pytest.fixture(scope="session")
def real_server(llama_build: Build) -> Path:
    """A real llama-server: the one under test in this run."""
    return llama_build.origin.path


@pytest.fixture
def dead() -> Iterator[str]:
    """Where nobody listens: nor does anybody get the port meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def by_hand(llama_guard: Guard, tmp_path: Path) -> Iterator[ByHand]:
    """Starts servers as a person does it; they end with the test."""
    with ExitStack() as stack:
        yield ByHand(llama_guard, tmp_path, stack)
