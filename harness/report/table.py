"""Tables, as plain text and as Markdown; what no terminal can show is a `?` in both."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MARKUP = re.compile(r"[\\|<*`]")


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line a row, columns aligned to the left."""
    rows = [[_shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of cells that are Markdown already; the first row is its head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]


def escaped(text: str) -> str:
    """Markdown that shows a text as it is, in a table too."""
    return _MARKUP.sub(r"\\\g<0>", _shown(text))


def _shown(cell: str) -> str:
    return cell if cell.isprintable() else "".join(c if c.isprintable() else "?" for c in cell)
