"""What the tests of the harness share."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.builds.build import Build


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
