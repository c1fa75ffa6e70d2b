"""Plain text tables."""

from __future__ import annotations

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line a row, columns aligned to the left; what no terminal can show is a `?`."""
    rows = [[_shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _shown(cell: str) -> str:
    return cell if cell.isprintable() else "".join(c if c.isprintable() else "?" for c in cell)
