"""Waiting for processes, and telling a process from a later one with the same number."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

import psutil
import pytest

SECONDS = 10.0
"""How long anything here may take to come about; far more than it does."""


def until(condition: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    """Returns as soon as `condition` holds; fails the test when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Identity:
    """One process for all times: its number, and when it started."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> Self:
        """The process that has this number now; one that is gone already just never lives."""
        try:
            return cls(pid, psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return cls(pid, 0.0)

    def lives(self) -> bool:
        """Whether this very process still runs. One that nobody has waited for yet does not."""
        try:
            process = psutil.Process(self.pid)
            # Start times are read against the clock, which may be corrected meanwhile.
            same = abs(process.create_time() - self.started) < 1.0
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def kill(self) -> None:
        """SIGKILL, unless it is gone."""
        if self.lives():
            psutil.Process(self.pid).kill()


def wait_until_gone(processes: Iterable[Identity]) -> None:
    """Fails the test when one of them outlives the time it has."""
    for process in processes:
        until(lambda process=process: not process.lives(), f"process {process.pid} is gone")  # type: ignore[misc]  # the default is the type


def descendants(pid: int) -> list[Identity]:
    """All processes below this one."""
    return [Identity.of(p.pid) for p in psutil.Process(pid).children(recursive=True)]
