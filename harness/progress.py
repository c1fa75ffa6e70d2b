"""Progress of a run of the suite: a pytest plugin that `harness.suite` loads into its own runs.

pytest's dots say neither how far a run is nor how long it took, and only pytest knows how many
tests there are, so the plugin counts inside pytest and writes to a descriptor that it was handed.
On a terminal one line is kept up to date; elsewhere there is one line a minute.

PYTEST_DONT_REWRITE: `harness.suite` imports this module before pytest loads the plugin.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

import pytest

VARIABLE = "LLAMA_HARNESS_PROGRESS"
"""The descriptor to write to; without it the plugin does nothing."""
_EVERY_SECONDS = 60.0
_TERMINAL_SECONDS = 0.5


class Progress:
    """Count the tests of one run and say how far it is."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._live = os.isatty(descriptor)
        self._started = self._said = time.monotonic()
        self._total = self._done = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Learn how many tests there are."""
        self._total = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Learn the same where workers collect."""
        self._total = len(ids)

    def pytest_runtest_logfinish(self) -> None:
        """Count one test."""
        self._done += 1
        now = time.monotonic()
        if now - self._said >= (_TERMINAL_SECONDS if self._live else _EVERY_SECONDS):
            self._said = now
            self._write(now)

    def pytest_unconfigure(self) -> None:
        """Say how long all of it took."""
        self._write(time.monotonic(), last=True)

    def _write(self, now: float, *, last: bool = False) -> None:
        minutes, seconds = divmod(round(now - self._started), 60)
        share = f"{100 * self._done // self._total} %" if self._total else "0 %"
        line = f"{share} of {self._total} configurations, {minutes} min {seconds:02} s"
        start, end = ("\r", "\n" if last else "") if self._live else ("", "\n")
        with suppress(OSError):  # nobody reads it any more
            os.write(self._descriptor, f"{start}{line}{end}".encode())


def pytest_configure(config: pytest.Config) -> None:
    """Watch this run, where it is told to and is no worker of pytest-xdist."""
    if (descriptor := os.environ.get(VARIABLE)) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(int(descriptor)), "llama-cache-progress")
