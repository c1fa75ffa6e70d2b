"""Tables as text and as Markdown."""

from __future__ import annotations

from harness.report.table import columns, escaped, markdown


def test_columns_are_aligned() -> None:
    assert columns([("a", "b"), ("long", "c\x1b")]) == ["a     b", "long  c?"]


def test_a_table_in_markdown() -> None:
    assert markdown([("a", "b"), ("1", "2")]) == ["| a | b |", "|---|---|", "| 1 | 2 |"]


def test_text_is_shown_as_it_is() -> None:
    assert escaped("a|b <c> *d* `e` \\f\x1b") == "a\\|b \\<c> \\*d\\* \\`e\\` \\\\f?"
    assert escaped("test_lora.py::test_x {np1,np4}-kvu") == "test_lora.py::test_x {np1,np4}-kvu"
