"""A server's log file, read by position: one slice a request."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

# The line that ends a task in every build from b9093 on; llama-server writes its log from
# another thread, so that the reply can be here before the line is.
_END_OF_TASK = b"stop processing"
_SETTLE_SECONDS = 0.5
# Up to the white space: the file may be read while the number is being written.
# A line of level E, or one without a level that says so: `error: ...` of the command line.
_ERROR = re.compile(
    r"[\d.]+ E (?P<logged>.+)|(?P<printed>(?![\d.]+ [A-Z] ).*\b(?:error|failed)\b.*)", re.IGNORECASE
)
# `common_init_: ` with what stands before it: the function that logs.
_FUNCTION = re.compile(r"^(?:\w+ +)?[\w:~]+: +")
_LISTENING = re.compile(rb"listening on http://127\.0\.0\.1:(\d{1,5})\s")


@dataclass(frozen=True, slots=True)
class LogSlice:
    """A part of a log file, by byte offsets."""

    path: Path
    start: int
    end: int

    def text(self) -> str:
        """The lines themselves; empty when the file is gone."""
        return _read(self.path, self.start, self.end).decode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class ServerLog:
    """The file a server's stdout and stderr go to."""

    path: Path

    def position(self) -> int:
        """Bytes written so far."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def since(self, start: int) -> LogSlice:
        """What was written since `start`, as of now."""
        return LogSlice(self.path, start, self.position())

    def request_slice(self, start: int) -> LogSlice:
        """What was written since `start`, waiting briefly for the line that ends a task.

        Log text only ever explains a verdict, so a line that comes later is no more than missing
        from the explanation.
        """
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            end = self.position()
            if _END_OF_TASK in _read(self.path, start, end) or time.monotonic() > deadline:
                return LogSlice(self.path, start, end)
            time.sleep(0.001)

    def announced_port(self, start: int = 0) -> int | None:
        """The port the server says since `start` that it listens on; None until it does."""
        match = _LISTENING.search(_read(self.path, start, self.position()))
        return int(match[1]) if match else None

    def error(self, start: int = 0) -> str:
        """Return the first error since `start`, without its time and the function that logged it.

        What comes after it in the log of a server that does not start is what follows from it.
        """
        lines = self.since(start).text().splitlines()
        match = next(filter(None, map(_ERROR.match, lines)), None)
        if match is None:
            return ""
        return _FUNCTION.sub("", match["logged"] or match["printed"]).strip()

    def tail(self, lines: int = 40) -> str:
        """The last `lines` lines."""
        end = self.position()
        text = _read(self.path, max(0, end - 64 * 1024), end).decode("utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])


class UnreadLog(ServerLog):
    """The log of a server that somebody else started: it goes where they want it, and is theirs."""

    __slots__ = ()

    def __init__(self) -> None:
        ServerLog.__init__(self, Path(os.devnull))

    def request_slice(self, start: int) -> LogSlice:
        """Nothing, and at once."""
        return self.since(start)


def _read(path: Path, start: int, end: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(max(0, end - start))
    except FileNotFoundError:
        return b""
