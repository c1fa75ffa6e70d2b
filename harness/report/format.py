"""A report in the format a person asks for: lines and tables, for a terminal or in Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
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
    """As plain text: tables stand apart."""
    for part in parts:
        if isinstance(part, str):
            (line,) = columns([[part]])
            yield line
        elif part.rows:
            yield from ("", *columns([part.head, *part.rows]), "")


def in_markdown(parts: Iterable[Part]) -> Iterator[str]:
    """As Markdown: a line of text is an item of a list."""
    for part in parts:
        if isinstance(part, str):
            yield f"- {escaped(part)}" if part else ""
        elif part.rows:
            rows = ([escaped(cell) for cell in row] for row in (part.head, *part.rows))
            yield from ("", *markdown([*rows]), "")


def in_json(facts: dict[str, Any]) -> Iterator[str]:
    """As one JSON object, for programs."""
    yield json.dumps(facts, indent=2)
