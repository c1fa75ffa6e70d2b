"""Progress of a run of the suite, as the plugin writes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from harness import progress
from harness.progress import VARIABLE, Progress


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    stopped = SimpleNamespace(now=0.0)
    stopped.monotonic = lambda: stopped.now
    monkeypatch.setattr(progress, "time", stopped)
    return stopped


def test_a_line_a_minute_where_nobody_watches(
    pipe: tuple[int, int], clock: SimpleNamespace
) -> None:
    running = Progress(pipe[1])
    running.pytest_xdist_node_collection_finished([str(number) for number in range(8)])
    for _ in range(8):
        clock.now += 25.0
        running.pytest_runtest_logfinish()
    running.pytest_unconfigure()
    assert os.read(pipe[0], 1000).decode().splitlines() == [
        "37 % of 8 configurations, 1 min 15 s",
        "75 % of 8 configurations, 2 min 30 s",
        "100 % of 8 configurations, 3 min 20 s",
    ]


def test_one_line_that_is_kept_up_to_date_on_a_terminal(
    pipe: tuple[int, int], clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.isatty", lambda descriptor: True)
    running = Progress(pipe[1])
    running.pytest_collection_finish(cast("pytest.Session", SimpleNamespace(items=["a", "b"])))
    for _ in range(2):
        clock.now += 1.0
        running.pytest_runtest_logfinish()
    running.pytest_unconfigure()
    one, both = (
        "\r50 % of 2 configurations, 0 min 01 s",
        "\r100 % of 2 configurations, 0 min 02 s",
    )
    assert os.read(pipe[0], 1000).decode() == f"{one}{both}{both}\n"


def test_only_a_run_of_ours_has_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[object] = []
    manager = SimpleNamespace(register=lambda plugin, name: registered.append(name))
    config = SimpleNamespace(pluginmanager=manager)
    progress.pytest_configure(cast("pytest.Config", config))
    monkeypatch.setenv(VARIABLE, "2")
    worker = SimpleNamespace(pluginmanager=manager, workerinput={})
    progress.pytest_configure(cast("pytest.Config", worker))
    assert registered == []
    progress.pytest_configure(cast("pytest.Config", config))
    assert registered == ["llama-cache-progress"]
