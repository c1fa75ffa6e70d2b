"""What the tests of the harness share."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.builds.build import Build


@pytest.fixture(scope="session")
def real_server(llama_build: Build) -> Path:
    """A real llama-server: the one under test in this run."""
    return llama_build.origin.path
