"""Reads from the output of CMake's build programs, git and pip how far they are."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HowFar:
    """How far a program is with what it is doing."""

    percent: float | None
    """None where only `doing` is known."""
    doing: str = ""

    def __str__(self) -> str:
        percent = "" if self.percent is None else f"{self.percent:.0f} %"
        return " ".join(filter(None, (self.doing, percent)))


# Each needs its end: the output may be read while a number is being written.
_SAID = re.compile(
    r"^\[(?P<ninja>\d+/\d+)\] "  # [123/456] Building CXX object
    r"|^\[ *(?P<make>\d+)%\] "  # [ 45%] Building CXX object
    r"|(?P<doing>\w+ (?:objects|deltas|files)): +(?P<git>\d+)% \("  # Receiving objects:  45% (9/20)
    r"|^Progress (?P<pip>\d+ of \d+)\s",  # Progress 123 of 456
    re.MULTILINE,
)


def how_far(output: str) -> HowFar | None:
    """Find the last statement of how far a program is; None where its output has none."""
    # git ends a line that it rewrites with a carriage return alone.
    said = list(_SAID.finditer(output.replace("\r", "\n")))
    if not said:
        return None
    match = said[-1]
    if match["make"] or match["git"]:
        return HowFar(float(match["make"] or match["git"]), (match["doing"] or "").lower())
    done, total = map(int, re.findall(r"\d+", match["ninja"] or match["pip"]))
    return HowFar(100 * done / total) if total and done <= total else None
