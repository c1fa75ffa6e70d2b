"""How much is left of the seconds that something may take."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(slots=True)
class Stopwatch:
    """Runs inside its `with` blocks, and knows what is left of its seconds."""

    seconds: float
    _since: float = 0.0

    @property
    def left(self) -> float:
        """Seconds left now; always enough to fail with a message."""
        running = time.monotonic() - self._since if self._since else 0.0
        return max(0.1, self.seconds - running)

    def __enter__(self) -> Self:
        self._since = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds -= time.monotonic() - self._since
        self._since = 0.0
