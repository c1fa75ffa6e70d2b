"""A report in the format a person asks for: lines and tables, for a terminal or in Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.report.table import columns, escaped, markdown


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


Part = str | Table
"""A line of text, or a table."""


def terminal(parts: Iterable[Part]) -> Iterator[str]:
    """As plain text."""
    return _apart(parts, lambda line: columns([[line]])[0], columns)


def in_markdown(parts: Iterable[Part]) -> Iterator[str]:
    """As Markdown: a line of text is an item of a list."""

    def table(rows: Sequence[Sequence[str]]) -> list[str]:
        return markdown([[escaped(cell) for cell in row] for row in rows])

    return _apart(parts, lambda line: f"- {escaped(line)}", table)


def _apart(
    parts: Iterable[Part],
    line: Callable[[str], str],
    table: Callable[[Sequence[Sequence[str]]], list[str]],
) -> Iterator[str]:
    """Lines one after another, tables apart from them and from each other."""
    after_table = False
    for part in parts:
        if isinstance(part, Table) and not part.rows:
            continue
        if after_table or isinstance(part, Table):
            yield ""
        after_table = isinstance(part, Table)
        if isinstance(part, Table):
            yield from table([part.head, *part.rows])
        else:
            yield line(part)


def in_json(facts: dict[str, Any]) -> Iterator[str]:
    """As one JSON object, for programs."""
    yield json.dumps(facts, indent=2)
