"""Tells the steps of getting a build on stderr: how far each is, how long it took, its log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from harness.builds.how_far import HowFar, how_far

_REWRITE_SECONDS = 0.25
"""A line on a terminal is rewritten at most this often."""
_LINE_SECONDS = 30.0
"""Elsewhere a line is written at most this often."""
_LINE_PERCENT = 10.0
"""A line that says a percentage waits for this much more, unless it has waited too long."""
_SILENT_SECONDS = 120.0


@dataclass(slots=True)
class _Step:
    """The step that is under way."""

    what: str
    began: float
    told: float
    """When its last line was written."""
    told_percent: float = 0.0
    far: HowFar | None = None
    """What its program said last; None where it said nothing of that kind."""


@dataclass(slots=True)
class Steps:
    """Tells of steps as they begin, go on and end. Tells nothing where `out` is None."""

    about: str
    """The build, as a person named it."""
    out: TextIO | None = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    _step: _Step | None = None
    _rewriting: bool = False
    """Whether the terminal's last line is one that is rewritten."""

    def say(self, line: str) -> None:
        """Write one line."""
        if self.out is not None:
            self._clear()
            print(f"{self.about}: {line}", file=self.out, flush=True)

    @contextmanager
    def step(self, what: str, log: object = None) -> Iterator[None]:
        """Tell when a step begins, and how long it took when it ends."""
        where = f" (log: {log})" if log else ""
        self.say(f"{what}{where}")
        start, outer = self.clock(), self._step
        self._step = _Step(what, began=start, told=start)
        try:
            yield
        finally:
            self._step = outer
            self.say(f"{what}: {self.clock() - start:.1f} s")

    def watch(self, text: str) -> None:
        """Read what the step's program has written since the last call, which may be nothing.

        Tells how far the step is where that is due.
        """
        if self._step is not None:
            self._step.far = how_far(text) or self._step.far
            self._tell(self._step.far)

    def progress(self, done: int, total: int | None) -> None:
        """Tell how many bytes of a download are there, where that is due."""
        if total:
            self._tell(HowFar(100 * done / total))
        else:
            self._tell(HowFar(None, f"{done / 1e6:.1f} MB"))

    def _tell(self, far: HowFar | None) -> None:
        """Tell how far the step is, and its minutes so far, on a terminal or in a line."""
        step, now = self._step, self.clock()
        if self.out is None or step is None:
            return
        percent = far.percent if far else None
        terminal = self.out.isatty()
        if not _is_due(step, now, percent, terminal=terminal):
            return
        step.told, step.told_percent = now, percent or 0.0
        part = ", ".join(filter(None, (str(far or ""), f"{(now - step.began) / 60:.1f} min")))
        if terminal:
            self.out.write(f"\r{self.about}: {part}\x1b[K")
            self.out.flush()
            self._rewriting = True
        else:
            self.say(f"{step.what}: {part}")

    def _clear(self) -> None:
        """Remove the line that is rewritten, where there is one."""
        if self.out is not None and self._rewriting:
            self.out.write("\r\x1b[K")
            self._rewriting = False


def _is_due(step: _Step, now: float, percent: float | None, *, terminal: bool) -> bool:
    """Decide whether to tell of a step now."""
    silent = now - step.told
    if terminal:
        return silent >= _REWRITE_SECONDS
    further = percent is None or abs(percent - step.told_percent) >= _LINE_PERCENT
    return silent >= _SILENT_SECONDS or (silent >= _LINE_SECONDS and further)
