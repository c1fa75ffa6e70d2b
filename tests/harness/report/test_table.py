"""Tables as text and as Markdown."""

from __future__ import annotations

import pytest

from harness.report.table import columns, escaped, folded, markdown, wrapped


def test_columns_are_aligned() -> None:
    assert columns([("a", "b"), ("long", "c\x1b")]) == ["a     b", "long  c?"]


def test_a_table_in_markdown() -> None:
    assert markdown([("a", "b"), ("1", "2")]) == ["| a | b |", "|---|---|", "| 1 | 2 |"]


def test_text_is_shown_as_it_is() -> None:
    assert escaped("a|b <c> *d* `e` \\f\x1b") == "a\\|b \\<c> \\*d\\* \\`e\\` \\\\f?"
    assert escaped("test_lora.py::test_x {np1,np4}-kvu") == "test_lora.py::test_x {np1,np4}-kvu"


HEAD = ("change", "scenario", "step", "configurations", "what")
ROW = (
    "reuse down",
    "test_slot_choice.py::test_pinned_slot_looks_in_the_prompt_cache",
    "P again",
    "{gemma3,granitehybrid,mamba2}-np1-kvu-completion-{wide0,wide1}",
    "lost_reuse: not looked up: the slot keeps enough: the state of 'turn 1' was in the cache",
)


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_a_folded_table_fits_and_says_all(width: int) -> None:
    lines = folded([HEAD, ROW, ("", *ROW[1:])], width)
    assert max(map(len, lines)) <= width
    whole = "".join("".join(lines).split())
    for cell in ROW:
        assert whole.count("".join(cell.split())) >= 1
    assert lines[0].startswith("change      scenario")


def test_what_fits_is_not_folded() -> None:
    rows = [("a", "b"), ("long", "c")]
    assert folded(rows, 80) == columns(rows)


def test_only_rows_that_are_too_long_are_folded() -> None:
    lines = folded([("a", "b"), ("1", "x" * 10), ("2", "y " * 10)], 15)
    assert lines == ["a  b", "1  xxxxxxxxxx", "2  y y y y y y", "   y y y y"]


def test_a_path_stays_whole() -> None:
    path = "/a-long/directory-of/llama-server"
    assert folded([("the build", f"at {path}")], 20) == ["the build", "    at", f"    {path}"]
    assert wrapped(f"build: {path}", 20) == ["build:", f"    {path}"]
