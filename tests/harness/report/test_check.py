"""The report for whoever is about to deploy a build."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from harness.check import check
from harness.ledger import Run, VerdictRow
from harness.report.check import SCHEMA, facts, parts
from harness.report.format import terminal
from tests.harness.report.test_compare import BROKEN, BUILD
from tests.harness.test_compare import ERROR, HOLDS, NOT_TESTED

MODEL = {"name": "llama", "memory": "dense", "adapters": {"A": "1"}}
FACTS: dict[str, Any] = {
    "builds": [BUILD],
    "models": [MODEL],
    "server_args": ["-fa", "on"],
    "device": "auto",
}


def lines(*rows: VerdictRow, left_out: tuple[str, ...] = (), **changed: object) -> list[str]:
    run = Run({**FACTS, **changed}, rows)
    return [*terminal(parts(run, check(run), left_out))]


def cells(line: str) -> list[str]:
    return re.split(" {2,}", line)


def test_a_line_a_scenario() -> None:
    other = replace(HOLDS, configuration="np4-kvu-completion")
    untested = replace(NOT_TESTED, configuration="np4-nokvu-completion")
    more = (replace(row, scenario="test_x.py::test_z") for row in (HOLDS, other, untested))
    text = lines(BROKEN, other, untested, ERROR, *more, replace(NOT_TESTED, scenario="test_y"))
    assert text[:3] == [
        "build: b1 (7e4c0a9), /x/llama-server",
        "models: llama (dense)",
        "server arguments: -fa on",
    ]
    assert [cells(line) for line in text[5:8]] == [
        ["FAILS", "test_lora.py::test_x", "1 of 4, 1 without a verdict, 1 not tested"],
        ["HOLDS", "test_x.py::test_z", "2 of 3, 1 not tested"],
        ["NOT TESTED", "test_y", "1 of 1", "needs -np 1"],
    ]
    assert "scenarios: 1 FAILS, 1 HOLDS, 1 NOT TESTED" in text
    assert "configurations: 1 fail, 1 without a verdict, 3 hold, 3 not tested" in text
    assert "not tested: 3 configurations: needs -np 1" in text


def test_a_failure_says_how_and_why_and_what_it_is_like() -> None:
    text = lines(replace(BROKEN, issue="#30275"))
    assert cells(text[8]) == [
        "test_lora.py::test_x",
        "P again: lost_reuse",
        "#30275",
        "evicted from the prompt cache: 'Q' came",
        "llama-np1-kvu-completion",
    ]
    assert any(line.startswith("#30275: It is thrown away. https://") for line in text)


def test_what_is_no_failure_is_not_told_as_one() -> None:
    text = "\n".join(lines(ERROR, replace(HOLDS, reason="answers not judged: noise")))
    assert "no verdict: ServerError: it ended" in text
    assert "holds: answers not judged: noise" in text


def test_many_reasons_are_named_below() -> None:
    text = lines(replace(NOT_TESTED, reason="a; b; c; d"))
    assert text[5].endswith("a; b; and 2 more")
    assert sum(line.startswith("not tested: 1 configuration: ") for line in text) == 4


def test_what_was_not_asked_for_is_said() -> None:
    generated = "not tested: a model of your own: these are generated ones"
    text = lines(HOLDS, left_out=("-k 'x'",))
    assert "not tested: what -k 'x' leaves out" in text
    assert generated in text
    own = {**MODEL, "name": "chat.gguf", "adapters": {}}
    text = lines(HOLDS, models=[own], server_args=[])
    assert generated not in text
    assert "not tested: adapters: the model comes without" in text
    assert "server arguments: the defaults" in text
    assert text[-1].startswith("never tested: several requests at a time")


def test_nothing_found_out_is_said() -> None:
    assert "nothing was found out: no scenario reached a verdict" in lines(ERROR)
    assert "nothing was found out: no scenario reached a verdict" in lines()


def test_facts_for_programs() -> None:
    run = Run(FACTS, (BROKEN, NOT_TESTED))
    found = facts(run, check(run), ())
    assert found == json.loads(json.dumps(found))
    assert (found["schema"], found["build"], found["server_args"]) == (SCHEMA, BUILD, ["-fa", "on"])
    counts = {"fails": 1, "error": 0, "accepted": 0, "holds": 0, "not_tested": 1}
    assert found["counts"]["configurations"] == counts
    assert found["not_tested"] == {"needs -np 1": 1}
    (scenario,) = found["scenarios"]
    assert scenario["status"] == "FAILS"
    (step,) = scenario["found"][0]["steps"]
    assert (step["step"], step["failures"]) == ("P again", ["lost_reuse"])
