"""The ledger: rows on disk, and rows handed between processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from harness.cause import Cause
from harness.errors import UsageProblem
from harness.ledger import SCHEMA, ColdRow, Ledger, Reason, RequestRow, Verdict, VerdictRow, read

REQUEST = RequestRow(
    step="P again",
    route="completion",
    lora={"A": 0.5},
    setting={"A": 0.5},
    prompt_tokens=609,
    possible=601,
    expected=(601, 601),
    cache_n=0,
    prompt_n=609,
    answer="cold run",
    read_again=601,
    reason=Reason(cause=Cause.EVICTED, text="'Q' came"),
    cold=ColdRow(limit=2e-3, apart=5e-4),
    failures=(("lost_reuse", "601 tokens were read again for nothing"),),
)
VERDICT = VerdictRow(
    scenario="test_lora.py::test_x",
    configuration="np1-kvu-completion",
    model="llama",
    build="b10434",
    verdict=Verdict.KNOWN_BUG,
    signature=("P again: lost_reuse",),
    issue="#30275",
    bug="It is thrown away.",
    reason=None,
    argv=("llama-server", "--port", "0"),
    seconds=0.1,
    requests=(REQUEST,),
)


def test_a_verdict_survives_being_handed_over() -> None:
    assert VerdictRow.from_json(json.loads(json.dumps(VERDICT.to_json()))) == VERDICT


def test_rows_of_a_file(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", {"harness": "1.0"})
    ledger.add(VERDICT)
    rows = [json.loads(line) for line in ledger.path.read_text().splitlines()]  # before close
    ledger.close()
    assert [row["row"] for row in rows] == ["run", "request", "verdict"]
    assert datetime.fromisoformat(rows[0].pop("time")).tzinfo is not None
    assert rows[0] == {"row": "run", "schema": SCHEMA, "harness": "1.0"}
    assert rows[1]["number"] == 1
    assert rows[1]["cache_n"] == 0
    assert rows[1]["scenario"] == rows[2]["scenario"] == "test_lora.py::test_x"
    assert rows[2]["verdict"] == "known bug"
    assert "requests" not in rows[2]


def test_a_whole_file_has_an_end(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", {})
    ledger.end(5)
    ledger.close()
    last = json.loads(ledger.path.read_text().splitlines()[-1])
    assert (last["row"], last["exit_code"]) == ("end", 5)


def test_a_full_disk_is_an_os_error() -> None:
    with pytest.raises(OSError, match="No space left"):
        Ledger(Path("/dev/full"), {})


@pytest.mark.parametrize(
    ("verdict", "reached"),
    [
        (Verdict.HOLDS, True),
        (Verdict.FAILED, True),
        (Verdict.KNOWN_BUG, True),
        (Verdict.KNOWN_BUG_GONE, True),
        (Verdict.UNSUPPORTED, False),
        (Verdict.NOT_TESTED, False),
        (Verdict.ERROR, False),
    ],
)
def test_which_verdicts_say_something_about_the_build(verdict: Verdict, reached: bool) -> None:
    assert verdict.reached is reached


def test_a_request_without_a_reply_has_no_numbers() -> None:
    assert RequestRow(step="P", route="chat").reuse == "-/-"
    assert REQUEST.reuse == "0/609"


def written(tmp_path: Path) -> Path:
    ledger = Ledger(tmp_path / "ledger.jsonl", {"models": []})
    ledger.add(VERDICT)
    ledger.add(replace(VERDICT, model="gemma3", requests=()))
    ledger.end(0)
    ledger.close()
    return ledger.path


def test_a_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = read(written(tmp_path))
    assert run.verdicts == (VERDICT, replace(VERDICT, model="gemma3", requests=()))
    assert run.facts["models"] == []


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: "", "is not a ledger"),
        (lambda text: "[1]\n", "is not a ledger"),
        (lambda text: text[:-20], "is not whole"),
        (lambda text: text.rpartition('{"row": "end"')[0], "is not whole"),
        (lambda text: text.replace('"schema": 3', '"schema": 1'), "of schema 1, not 3"),
        (lambda text: text.replace('"signature"', '"signs"'), "is damaged"),
        (lambda text: text.replace('{"row": "verdict"', '{"roe": "verdict"'), "is damaged"),
        (lambda text: text.replace('"cache_n": 0', '"cache_n": "x"'), "is damaged: Expected `int"),
        (lambda text: text.replace('"setting": {', '"setting": [1], "x": {'), "is damaged"),
        (lambda text: text.replace('"cause": "evicted', '"cause": "taken'), "is damaged"),
        (lambda text: text.partition('{"row": "end"')[0] + text, "is damaged: a row of kind"),
        (lambda text: text.replace('{"row": "verdict"', "[" * 100_000 + '{"row": "'), "is damaged"),
    ],
    ids=[
        *("empty", "other", "cut", "no_end", "schema", "field", "row", "number", "setting"),
        *("cause", "two", "nested"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, damage: Callable[[str], str], words: str
) -> None:
    path = written(tmp_path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(UsageProblem, match=words) as problem:
        read(path)
    assert "\n" not in str(problem.value)
    with pytest.raises(UsageProblem, match="No such file"):
        read(tmp_path / "nowhere")
