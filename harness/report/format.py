"""A report in the format a person asks for: lines and tables, for a terminal or in Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.report.table import columns, escaped, folded, markdown, wrapped


class Format(StrEnum):
    """What reports can be printed as."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of plain text; without rows it is left out."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Block:
    """Lines to be copied as they are; without lines it is left out."""

    lines: Sequence[str]
    language: str = ""
    """Of the lines, for Markdown."""
    summary: str = ""
    """In Markdown the lines are hidden behind this, where it is given."""


class Line(str):
    """A line of text that is never folded, since programs read it as a line."""


Part = str | Table | Block
"""A line of text, a table, or lines to be copied."""


def terminal(parts: Iterable[Part], width: int | None = None) -> Iterator[str]:
    """Yield plain text, in lines of that width unless it is None."""

    def line(text: str) -> list[str]:
        if width is None or isinstance(text, Line):
            return columns([[text]])
        return wrapped(text, width)

    def table(rows: Sequence[Sequence[str]]) -> list[str]:
        return columns(rows) if width is None else folded(rows, width)

    def block(part: Block) -> list[str]:
        return [columns([[text]])[0] for text in part.lines]

    return _apart(parts, line, table, block)


def in_markdown(parts: Iterable[Part]) -> Iterator[str]:
    """Yield Markdown: a line of text is an item of a list."""

    def line(text: str) -> list[str]:
        return [f"- {escaped(text)}"]

    def table(rows: Sequence[Sequence[str]]) -> list[str]:
        return markdown([[escaped(cell) for cell in row] for row in rows])

    def block(part: Block) -> list[str]:
        lines = [f"```{part.language}", *(columns([[text]])[0] for text in part.lines), "```"]
        if not part.summary:
            return lines
        return [f"<details><summary>{part.summary}</summary>", "", *lines, "", "</details>"]

    return _apart(parts, line, table, block)


def _apart(
    parts: Iterable[Part],
    line: Callable[[str], list[str]],
    table: Callable[[Sequence[Sequence[str]]], list[str]],
    block: Callable[[Block], list[str]],
) -> Iterator[str]:
    """Yield lines one after another, tables and blocks apart from them and from each other."""
    begun = after = False
    for part in parts:
        if (isinstance(part, Table) and not part.rows) or (
            isinstance(part, Block) and not part.lines
        ):
            continue
        if after or (begun and not isinstance(part, str)):
            yield ""
        begun, after = True, not isinstance(part, str)
        if isinstance(part, Table):
            yield from table([part.head, *part.rows])
        elif isinstance(part, Block):
            yield from block(part)
        else:
            yield from line(part)


def in_json(facts: dict[str, Any]) -> Iterator[str]:
    """Yield one JSON object, for programs."""
    yield json.dumps(facts, indent=2)
