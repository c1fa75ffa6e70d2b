"""What the tests of the harness share."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.builds.build import Build
from harness.server.guard import Guard
from tests.harness.builds.fake_upstream import FakeUpstream
from tests.harness.by_hand import ByHand

_NEEDED = {"xdist": "pytest-xdist", "hatchling": "hatchling"}
"""What tests of the harness import or run beside what the suite needs, and its package."""
_SECONDS = 600.0
"""A test that takes longer hangs, on however slow a machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test a limit; say in one line that the extra `dev` is not installed."""
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents]
    for item in ours:
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SECONDS))
    missing = [package for name, package in _NEEDED.items() if find_spec(name) is None]
    if missing and ours:
        raise pytest.UsageError(
            f"the tests of the harness need {' and '.join(missing)}: "
            "pip install -e '.[prebuilt,dev]' (the suite alone is tests/cache)"
        )


@pytest.fixture(scope="session", autouse=True)
def bytecode_is_kept() -> None:
    """Let the processes that tests start write bytecode.

    Each of hundreds would else compile the whole harness again.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(scope="session")
def real_server(llama_build: Build) -> Path:
    """A real llama-server: the one under test in this run."""
    return llama_build.origin.path


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what subprocesses print stay on one line; tests of narrow terminals say so."""
    monkeypatch.setenv("COLUMNS", "400")


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


@pytest.fixture
def only_upstream(
    tmp_path: Path, real_server: Path, dead: str, monkeypatch: pytest.MonkeyPatch
) -> FakeUpstream:
    """The only place that builds come from, with a store of its own."""
    fake = FakeUpstream(tmp_path / "upstream", real_server)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LLAMA_HARNESS_UPSTREAM", fake.url)
    monkeypatch.setenv("LLAMA_HARNESS_RELEASES", f"{dead}/ggml-org/llama.cpp")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return fake
