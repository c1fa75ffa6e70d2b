"""One process at a time: locks that end with whoever holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

_MODE = 0o664
"""People of one group may share a cache."""


@contextmanager
def alone(file: Path, waits: Callable[[], None]) -> Iterator[None]:
    """Nobody else is in a block with the same file; `waits` is called where one has to wait.

    Raises `OSError`, or `NotImplementedError` on a file system without locks.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file, mode=_MODE)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        waits()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
