"""What is told, on stderr, of the way to a build: each step, how long it took, where its log is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

_EVERY_SECONDS = 0.2


@dataclass(slots=True)
class Steps:
    """Tells of steps as they begin and end; nothing where `out` is None."""

    about: str
    """The build, as a person named it."""
    out: TextIO | None = field(default_factory=lambda: sys.stderr)
    _last_shown: float = 0.0

    def say(self, line: str) -> None:
        """One line."""
        if self.out is not None:
            print(f"{self.about}: {line}", file=self.out, flush=True)

    @contextmanager
    def step(self, what: str, log: object = None) -> Iterator[None]:
        """A step that may take long: told when it begins, and how long it took."""
        where = f" (log: {log})" if log else ""
        self.say(f"{what}{where}")
        start = time.monotonic()
        try:
            yield
        finally:
            self._clear()
            self.say(f"{what}: {time.monotonic() - start:.1f} s")

    def progress(self, done: int, total: int | None) -> None:
        """How far a step is, in bytes or files; shown on a terminal only."""
        now = time.monotonic()
        if self.out is None or not self.out.isatty() or now - self._last_shown < _EVERY_SECONDS:
            return
        self._last_shown = now
        part = f"{100 * done / total:.0f} %" if total else f"{done / 1e6:.1f} MB"
        self.out.write(f"\r{self.about}: {part}\x1b[K")
        self.out.flush()

    def _clear(self) -> None:
        if self.out is not None and self._last_shown and self.out.isatty():
            self.out.write("\r\x1b[K")
            self._last_shown = 0.0
