"""The report of what changed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from harness.compare import compare
from harness.ledger import Run, VerdictRow
from harness.report.compare import SCHEMA, Asked, facts, page, parts
from harness.report.format import in_markdown, terminal
from tests.harness.test_compare import ERROR, FAILS, HOLDS, LESS, LOST, NOT_TESTED, P, failing

BUILD = {"id": "b1", "commit": "7e4c0a9", "path": "/x/llama-server"}
FACTS: dict[str, Any] = {"builds": [BUILD], "models": []}
BROKEN = replace(FAILS, requests=(P, LOST))


def run(*rows: VerdictRow) -> Run:
    return Run(FACTS, rows)


def lines(before: VerdictRow, after: VerdictRow) -> list[list[str]]:
    """The rows of the table, in cells, and the lines after it."""
    base, head = run(before), run(after)
    text = [*terminal(parts(base, head, compare(base, head)))]
    return [re.split(" {2,}", line.strip()) for line in text[4:] if line]


def test_what_broke_says_how_and_why() -> None:
    row, total = lines(HOLDS, BROKEN)
    why = "lost_reuse: evicted from the prompt cache: 'Q' came"
    where = "llama-np1-kvu-completion"
    change = ["broken", "test_lora.py::test_x", "P again", "99/1 -> 0/100", "-99", where, why]
    assert (row, total) == (change, ["broken: 1, unchanged: 0"])


def test_what_it_looks_like_is_named() -> None:
    rows = lines(HOLDS, replace(BROKEN, issue="#30275"))
    assert rows[0][-1] == "like #30275"
    assert rows[2][0].startswith("#30275: It is thrown away. https://")


def test_no_verdict_any_more() -> None:
    assert lines(HOLDS, ERROR)[0][-1] == "error: ServerError: it ended"


def test_what_is_tested_on_one_of_them() -> None:
    assert lines(HOLDS, NOT_TESTED)[0][-1] == "not tested: needs -np 1"
    said = "failed: P again: lost_reuse; before: not tested: needs -np 1"
    assert lines(NOT_TESTED, FAILS)[0][-1] == said


def test_what_is_fixed_and_what_is_left() -> None:
    assert lines(BROKEN, HOLDS)[0][-1] == "no more lost_reuse"
    two = replace(BROKEN, signature=("P again: lost_reuse", "P: crash"))
    left, step, _ = lines(two, failing("P: crash"))
    assert left[-1] == "still failed: P: crash"
    assert step == ["P again", "0/100 -> 99/1", "+99", "no more lost_reuse"]


def test_reuse_and_its_sum() -> None:
    row, *totals = lines(HOLDS, replace(HOLDS, requests=(P, LESS)))
    assert row[3:5] == ["99/1 -> 40/60", "-59"]
    assert totals == [["reuse down: 1, unchanged: 0"], ["reuse down: -59 tokens in all"]]


def test_configurations_with_the_same_change_share_a_row() -> None:
    """Whatever the numbers in the words of the reason."""
    reason = BROKEN.requests[1].reason
    assert reason is not None
    other = replace(LOST, reason=replace(reason, text="'R' came"))
    wheres = ("np1-nokvu-completion", "np1-kvu-completion")
    base = run(*(replace(HOLDS, configuration=where) for where in wheres))
    broken = (BROKEN, replace(BROKEN, requests=(P, other)))
    rows = (replace(row, configuration=w) for row, w in zip(broken, wheres, strict=True))
    head = run(*rows)
    text = [*terminal(parts(base, head, compare(base, head)))]
    assert sum("lost_reuse" in line for line in text) == 1
    assert any("llama-np1-{kvu,nokvu}-completion" in line for line in text)
    assert text[-1] == "broken: 2, unchanged: 0"


def test_nothing_to_compare_is_said() -> None:
    base, head = run(ERROR), run(NOT_TESTED)
    text = [*terminal(parts(base, head, compare(base, head)))]
    assert text == [
        "base: b1 (7e4c0a9), /x/llama-server",
        "head: b1 (7e4c0a9), /x/llama-server",
        "nothing was compared: no scenario reached a verdict on both",
        "unchanged: 0, no verdict on either: 1",
    ]


def test_runs_that_differ_in_more_than_the_build_are_told() -> None:
    other = {**FACTS, "server_args": ["-np", "4"], "models": [{"name": "llama"}]}
    base, head = run(HOLDS), Run(other, (HOLDS,))
    text = [*terminal(parts(base, head, compare(base, head)))]
    assert "the runs differ in server arguments: base the defaults, head -np 4" in text
    assert "the runs differ in models: base , head llama" in text


def test_markdown_has_counts_and_a_legend_first_and_no_local_path() -> None:
    base, head = run(HOLDS), run(BROKEN)
    asked = Asked(refs=("/x/llama-server", "b1"))
    text = [*in_markdown(page(base, head, compare(base, head), asked))]
    assert text[0] == "- broken: 1, unchanged: 0"
    assert text[1].startswith("- broken: fails in a way it did not")
    assert text[2:4] == ["- base: b1 (7e4c0a9)", "- head: b1 (7e4c0a9)"]
    assert "/x/" not in "\n".join(text)
    again = "llama-harness compare PATH b1 --memory=llama -k 'test_x[llama-np1-kvu-completion]'"
    assert again in text
    asked = Asked(refs=("b1", "b2"), config="prod.toml")
    assert any(
        "b1 b2 --config prod.toml -k" in line
        for line in in_markdown(page(base, head, compare(base, head), asked))
    )


@pytest.mark.parametrize("width", [80, 120, 200])
def test_it_fits_the_terminal(width: int) -> None:
    base, head = run(HOLDS), run(BROKEN)
    text = [*terminal(parts(base, head, compare(base, head)), width)]
    assert max(map(len, text)) <= width


def test_facts_for_programs() -> None:
    base, head = run(HOLDS), run(BROKEN)
    found = facts(base, head, compare(base, head))
    assert found == json.loads(json.dumps(found))
    assert found["schema"] == SCHEMA
    assert found["base"] == BUILD
    assert (found["counts"]["broken"], found["counts"]["unchanged"]) == (1, 0)
    (change,) = found["changes"]
    assert (change["kind"], change["new"]) == ("broken", ["P again: lost_reuse"])
    (step,) = change["steps"]
    assert (step["before"]["cache_n"], step["after"]["cache_n"], step["tokens"]) == (99, 0, -99)
    assert step["after"]["cause"] == "evicted from the prompt cache"
