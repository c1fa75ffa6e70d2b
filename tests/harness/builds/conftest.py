"""What tests of obtaining builds share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from harness.builds.store import Store
from harness.builds.upstream import UPSTREAM_VARIABLE
from tests.harness.builds.fake_upstream import FakeUpstream


@pytest.fixture
def fake_upstream(tmp_path: Path, real_server: Path) -> FakeUpstream:
    """A repository whose builds are the real server."""
    return FakeUpstream(tmp_path / "upstream", real_server)


@pytest.fixture
def environ(fake_upstream: FakeUpstream, dead: str) -> Mapping[str, str]:
    """An environment in which the fake upstream is upstream, and there are no releases."""
    return {
        **os.environ,
        UPSTREAM_VARIABLE: fake_upstream.url,
        "LLAMA_HARNESS_RELEASES": f"{dead}/ggml-org/llama.cpp",
    }


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store(tmp_path / "builds")
    yield store
    store.close()
