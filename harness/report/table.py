"""Tables, as plain text and as Markdown; what no terminal can show is a `?` in both."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

_MARKUP = re.compile(r"[\\|<*`]")
_INDENT = "    "
_PATH = re.compile(r"~?\.{0,2}/")
_PARTS = re.compile(r"[^-,_]{0,19}[-,_]|[^-,_]{1,20}")


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line a row, columns aligned to the left."""
    rows = [[_shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def folded(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the same lines where they fit; what does not fit goes on, indented, on further lines.

    The first columns stay aligned as long as they take less than half of the width. Nothing is cut:
    a path that is wider than a line stays whole, so that it can be copied.
    """
    lines = columns(rows)
    if max(map(len, lines)) <= width:
        return lines
    rows = [[_shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = _aligned(widths, width)
    indent = " " * (sum(widths[:aligned]) + 2 * aligned or len(_INDENT))
    found = []
    for row in rows:
        first = "".join(
            f"{cell.ljust(size)}  " for cell, size in zip(row[:aligned], widths, strict=False)
        )
        found += _flowing(first, row[aligned:], indent, width)
    return found


def wrapped(text: str, width: int, indent: str = _INDENT) -> list[str]:
    """Return a text as lines; all but the first are indented."""
    return _flowing("", [_shown(text)], indent, width)


def _aligned(widths: Sequence[int], width: int) -> int:
    """Return how many of the first columns together take less than half of the width."""
    ends = itertools.accumulate(size + 2 for size in widths)
    return sum(end < width / 2 for end in ends)


def _flowing(first: str, cells: Sequence[str], indent: str, width: int) -> list[str]:
    """Return cells one after another, on a new line where the next one does not fit."""
    lines, begun = [first], False
    for cell in filter(None, cells):
        gap = "  " if begun else ""
        if begun and len(lines[-1]) + len(gap) + len(cell) > width:
            lines.append(indent)
            gap = ""
        begun = True
        room = width - len(indent)
        shift = indent if max(map(len, cell.split(" "))) <= room else _INDENT
        if shift != indent and len(lines[-1] + gap + cell) > width and lines[-1].strip():
            lines.append(shift)
            gap = ""
        lines[-1] += gap
        start, *more = _pieces(cell, width - len(lines[-1]), width - len(shift))
        lines[-1] += start
        lines += [shift + piece for piece in more]
    return [line.rstrip() for line in lines]


def _pieces(text: str, first: int, room: int) -> list[str]:
    """Return a text cut at spaces; a word that is too long is cut at a `-`, `,` or `_`."""
    pieces, left = [""], first
    for word in text.split(" "):
        parts = [word] if len(word) <= room or _PATH.match(word) else _PARTS.findall(word)
        for number, part in enumerate(parts):
            gap = " " if pieces[-1] and not number else ""
            if pieces[-1] and len(pieces[-1] + gap + part) > left:
                pieces.append(part)
                left = room
            else:
                pieces[-1] += gap + part
    return pieces


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of cells that are Markdown already; the first row is its head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]


def escaped(text: str) -> str:
    """Markdown that shows a text as it is, in a table too."""
    return _MARKUP.sub(r"\\\g<0>", _shown(text))


def _shown(cell: str) -> str:
    return cell if cell.isprintable() else "".join(c if c.isprintable() else "?" for c in cell)
