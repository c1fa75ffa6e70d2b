"""The formats of a report."""

from __future__ import annotations

import json

from harness.report.format import Block, Line, Part, Table, in_json, in_markdown, terminal

PARTS: list[Part] = ["one | two", Table(("a", "b"), [("1", "x*")]), Table(("none",), []), "end"]


def test_for_a_terminal() -> None:
    assert [*terminal(PARTS)] == ["one | two", "", "a  b", "1  x*", "", "end"]


def test_what_no_terminal_can_show() -> None:
    assert [*terminal(["a\x1b"])] == ["a?"]


def test_in_markdown() -> None:
    table = ["", "| a | b |", "|---|---|", "| 1 | x\\* |", ""]
    assert [*in_markdown(PARTS)] == ["- one \\| two", *table, "- end"]


def test_in_json() -> None:
    assert json.loads("\n".join(in_json({"schema": 1}))) == {"schema": 1}


def test_what_is_to_be_copied_is_not_folded() -> None:
    parts: list[Part] = ["one two", Block(["a long line"], "sh", "More"), Block([]), "end"]
    assert [*terminal(parts, 5)] == ["one", "    two", "", "a long line", "", "end"]
    block = [
        "<details><summary>More</summary>",
        "",
        "```sh",
        "a long line",
        "```",
        "",
        "</details>",
    ]
    assert [*in_markdown(parts)] == ["- one two", "", *block, "", "- end"]


def test_a_line_that_programs_read_is_not_folded() -> None:
    assert [*terminal([Line("one two")], 5)] == ["one two"]
