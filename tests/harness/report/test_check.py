"""The report for whoever is about to deploy a build."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from typing import Any

import pytest

from harness.check import check
from harness.ledger import Run, Verdict, VerdictRow
from harness.report.check import SCHEMA, Asked, facts, page, parts
from harness.report.format import in_markdown, terminal
from tests.harness.report.test_compare import BROKEN, BUILD
from tests.harness.test_compare import ERROR, FAILS, HOLDS, NOT_TESTED

MODEL = {"name": "llama", "memory": "dense", "adapters": {"A": "1"}}
FACTS: dict[str, Any] = {
    "builds": [BUILD],
    "models": [MODEL],
    "server_args": ["-fa", "on"],
    "device": "auto",
}


KNOWN = replace(BROKEN, issue="#30275")
ACCEPTED = replace(KNOWN, verdict=Verdict.KNOWN_BUG)
ASKED = Asked(ref="/x/llama-server", config="/etc/prod.toml")


def lines(*rows: VerdictRow, asked: Asked = ASKED, **changed: object) -> list[str]:
    run = Run({**FACTS, **changed}, rows)
    return [*terminal(parts(run, check(run), asked))]


def marked(*rows: VerdictRow, asked: Asked = ASKED, **changed: object) -> list[str]:
    run = Run({**FACTS, **changed}, rows)
    return [*in_markdown(page(run, check(run), asked))]


def cells(line: str) -> list[str]:
    return re.split(" {2,}", line)


def test_a_line_a_scenario() -> None:
    other = replace(HOLDS, configuration="np4-kvu-completion")
    untested = replace(NOT_TESTED, configuration="np4-nokvu-completion")
    more = (replace(row, scenario="test_x.py::test_z") for row in (HOLDS, other, untested))
    text = lines(BROKEN, other, untested, *more, replace(NOT_TESTED, scenario="test_y"))
    assert text[:3] == [
        "build: b1 (7e4c0a9), /x/llama-server",
        "models: llama (dense)",
        "server arguments: -fa on",
    ]
    assert [cells(line) for line in text[5:7]] == [
        ["FAILS", "1 of 2", "1", "test_lora.py::test_x"],
        ["HOLDS", "2 of 2", "1", "test_x.py::test_z"],
    ]
    assert "not tested at all: 1 scenario: test_y" in text
    assert "scenarios: 1 FAILS, 1 HOLDS, 1 NOT TESTED" in text
    assert "configurations: 1 fail, 3 hold, 3 not tested" in text
    assert "not tested: 3 configurations: needs -np 1" in text


def test_an_error_hides_no_verdict_and_is_one_line() -> None:
    """However many scenarios of a model had it."""
    names = ("test_x.py::test_a", "test_x.py::test_b")
    rows = [replace(HOLDS, scenario=name) for name in names]
    rows += [replace(ERROR, scenario=name, model="mamba2") for name in names]
    text = lines(*rows)
    assert cells(text[5]) == ["HOLDS", "1 of 2", names[0] + " (1 of 2 models; mamba2: error)"]
    (row,) = [line for line in text if "it ended" in line]
    assert cells(row) == ["all of mamba2 (2 configurations)", "all", "ServerError: it ended"]
    assert text[-1] == "cannot say: 2 scenarios hold, but 2 errors with mamba2"


def test_a_model_that_does_not_start_is_one_line_with_a_way_out() -> None:
    """The first scenario has the error; the others are not tested for it."""
    reason = "mamba2 does not start with -ctk q9: no such type"
    dead = [
        replace(ERROR, model="mamba2", scenario=f"test_{number}", reason=reason, verdict=verdict)
        for number, verdict in enumerate([Verdict.ERROR, Verdict.NOT_TESTED, Verdict.NOT_TESTED])
    ]
    models = [MODEL, {**MODEL, "name": "mamba2"}]
    text = lines(HOLDS, *dead, models=models)
    (row,) = [line for line in text if "q9" in line]
    where = "all of mamba2: the server does not start (3 configurations)"
    assert cells(row) == [where, "all", reason]
    assert 'memory = "llama"' in text
    assert text[-1] == "cannot say: 1 scenario holds, but mamba2 does not start"


def test_an_error_of_some_configurations_names_them() -> None:
    other = replace(HOLDS, scenario="test_x.py::test_a")
    (row,) = [line for line in lines(ERROR, other) if "it ended" in line]
    where = f"llama-{ERROR.configuration} (1 configuration)"
    assert cells(row) == [where, ERROR.scenario, "ServerError: it ended"]


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
    text = "\n".join(lines(replace(HOLDS, reason="answers not judged: noise")))
    assert "1 configuration holds: answers not judged: noise" in text


def test_what_a_flag_leaves_out_is_one_line() -> None:
    reason = "needs --parallel 1, args gives -np 4"
    both = f"needs --cache-ram 0, args gives --cache-ram 8; {reason}"
    text = lines(replace(NOT_TESTED, reason=reason), replace(NOT_TESTED, reason=both))
    assert "your -np 4 leaves out 2 configurations that need --parallel 1" in text
    assert "your --cache-ram 8 leaves out 1 configuration that need --cache-ram 0" in text
    assert not any(line.startswith("not tested: 1 conf") for line in text)


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        ([HOLDS], "b1 may be deployed with these flags: 1 scenario holds"),
        (
            [HOLDS, ACCEPTED],
            "b1 may be deployed with these flags: 1 scenario holds, 1 fails as accepted",
        ),
        ([ACCEPTED], "b1 may be deployed with these flags: 1 scenario fails as accepted"),
        ([FAILS], "b1 should not be deployed with these flags: 1 scenario fails"),
        (
            [KNOWN, HOLDS, ERROR],
            "b1 should not be deployed with these flags: 1 scenario fails (1 known)",
        ),
        ([HOLDS, NOT_TESTED], "b1 may be deployed with these flags: 1 scenario holds"),
        ([HOLDS, ERROR], "cannot say: 1 scenario holds, but 1 error"),
        ([ERROR], "cannot say: errors with llama, and no scenario reached a verdict"),
        ([NOT_TESTED], "cannot say: no scenario reached a verdict"),
        ([], "cannot say: no scenario reached a verdict"),
    ],
)
def test_the_last_line_is_the_answer(rows: list[VerdictRow], answer: str) -> None:
    named = [replace(row, scenario=f"test_{number}") for number, row in enumerate(rows)]
    assert lines(*named)[-1] == answer
    assert len(answer) <= 80
    assert marked(*named)[0] == f"- {answer}"


def test_the_answer_says_what_it_is_about() -> None:
    asked = replace(ASKED, left_out=("-k 'x'",))
    line = lines(HOLDS, asked=asked, server_args=[])[-1]
    assert line == "b1 may be deployed with default flags (-k only): 1 scenario holds"
    assert "not tested: what -k 'x' leaves out" in lines(HOLDS, asked=asked)


def test_what_to_accept_is_ready_to_paste() -> None:
    asked = replace(ASKED, accepted=("#1",))
    text = lines(KNOWN, asked=asked)
    start = text.index("accept = [")
    pasted = tomllib.loads("\n".join(text[start : text.index("]") + 1]))
    assert pasted == {"accept": ["#1", "#30275"]}
    assert "llama-harness compare OLD /x/llama-server --config /etc/prod.toml" in text
    assert not any("accept" in line for line in lines(FAILS, asked=asked))


def test_what_was_not_asked_for_is_said() -> None:
    generated = "not tested: a model of your own: these are generated ones"
    assert generated in lines(HOLDS)
    own = {**MODEL, "name": "chat.gguf", "adapters": {}}
    text = lines(HOLDS, models=[own], server_args=[])
    assert generated not in text
    assert "not tested: adapters: the model comes without" in text
    assert "server arguments: the defaults" in text
    assert any(line.startswith("never tested: several requests at a time") for line in text)


def test_markdown_has_counts_and_a_legend_first_and_no_local_path() -> None:
    error = replace(ERROR, scenario="test_y", reason="ServerError: no file /home/me/chat/a.gguf")
    text = marked(KNOWN, error, server_args=["--chat-template-file", "/home/me/x.jinja"])
    assert text[1].startswith("- scenarios: 1 FAILS, 1 ERROR")
    assert text[3].startswith("- FAILS: ")
    page = "\n".join(text)
    assert "/x/" not in page
    assert "/home" not in page
    assert "/etc" not in page
    assert "no file a.gguf" in page
    again = "llama-harness check PATH --config prod.toml -k 'test_x[llama-np1-kvu-completion]'"
    start = text.index("<details><summary>Run one of these again</summary>")
    assert text[start + 1 : start + 4] == ["", "```sh", again]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_it_fits_the_terminal(width: int) -> None:
    run = Run(FACTS, (KNOWN, replace(ERROR, scenario="test_y", reason="a long one " * 30)))
    found = [*terminal(parts(run, check(run), ASKED), width)]
    assert max(map(len, found)) <= width


def test_facts_for_programs() -> None:
    run = Run(FACTS, (BROKEN, NOT_TESTED))
    found = facts(run, check(run), ASKED)
    assert found == json.loads(json.dumps(found))
    assert (found["schema"], found["build"], found["server_args"]) == (SCHEMA, BUILD, ["-fa", "on"])
    counts = {"fails": 1, "error": 0, "accepted": 0, "holds": 0, "not_tested": 1}
    assert found["counts"]["configurations"] == counts
    assert (found["may_deploy"], found["accept"]) == (False, [])
    assert found["not_tested"] == {"needs -np 1": 1}
    (scenario,) = found["scenarios"]
    assert scenario["status"] == "FAILS"
    (step,) = scenario["found"][0]["steps"]
    assert (step["step"], step["failures"]) == ("P again", ["lost_reuse"])
