"""A ledger in words."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from harness.cause import Cause
from harness.ledger import Reason, RequestRow, Run
from harness.report.ledger import Only, rows, sums
from tests.harness.test_ledger import VERDICT

FIRST = RequestRow(
    step="P",
    route="completion",
    setting={"A": 0.5},
    purpose="turn",
    conversation="P",
    prompt_tokens=600,
    slot=0,
    chosen="least recently used",
    cache_n=0,
    prompt_n=600,
)
PROBE = replace(
    FIRST,
    step="ping",
    setting={},
    purpose="probe",
    conversation=None,
    prompt_tokens=20,
    prompt_n=20,
)
AGAIN = replace(
    FIRST,
    step="P again",
    chosen="most similar",
    cache_n=200,
    prompt_n=400,
    possible=599,
    read_again=399,
    reason=Reason(cause=Cause.EVICTED, text="by 'ping'"),
    failures=(("lost_reuse", "399 tokens were read again for nothing"),),
)
RESTART = RequestRow(step="restart 1", route="restart")
RUN = Run({}, (replace(VERDICT, requests=(FIRST, PROBE, RESTART, AGAIN)),))


def test_every_step() -> None:
    title, head, first, probe, restart, again, end = rows(RUN)
    assert title == "test_lora.py::test_x[llama-np1-kvu-completion] on b10434: known bug"
    shown = "step conversation what adapters slot cache_n/prompt_n read again why"
    assert head.split() == shown.split()
    assert re.split(" {2,}", first.strip()) == [
        "P",
        "P",
        "turn",
        "A at 0.5",
        "0 (least recently used)",
        "0/600",
    ]
    assert re.split(" {2,}", probe.strip()) == [
        "ping",
        "-",
        "probe",
        "no adapter",
        "0 (least recently used)",
        "0/20",
    ]
    assert restart.split() == ["restart", "1", "restart"]
    assert re.split(" {2,}", again.strip())[5:] == [
        "200/400",
        "399",
        "evicted from the prompt cache: by 'ping'",
    ]
    assert end == ""


@pytest.mark.parametrize("only", [Only.REASONS, Only.FAILED])
def test_only_some_steps(only: Only) -> None:
    lines = list(rows(RUN, only))
    assert [line.split("  ")[1] for line in lines[2:-1]] == ["P again"]
    none = Run({}, (replace(VERDICT, requests=(FIRST,)),))
    assert list(rows(none, only)) == [only.value]


def test_sums() -> None:
    lines = list(sums(RUN))
    of_conversation = [line.split()[-5:] for line in lines if line.startswith("test_lora.py")]
    assert of_conversation == [["2", "1200", "200", "(17%)", "399"], ["1", "20", "0", "(0%)", "0"]]
    for start, numbers in [
        ("turn", ["2", "1200", "200", "(17%)", "399"]),
        ("probe", ["1", "20", "0", "(0%)", "0"]),
        ("A at 0.5", ["2", "1200", "200", "(17%)", "399"]),
        ("most similar", ["1", "600", "200", "(33%)", "399"]),
        ("evicted from the prompt cache", ["1", "1", "399"]),
    ]:
        (line,) = (line for line in lines if line.startswith(start))
        assert line.split()[-len(numbers) :] == numbers
    totals = [line.split()[1:] for line in lines if line.startswith("all ")]
    assert totals == [["3", "1220", "200", "(16%)", "399"]] * 4


def test_a_ledger_of_nothing() -> None:
    run = Run({}, ())
    assert list(rows(run)) == ["no steps"]
    totals = [line.split()[1:] for line in sums(run) if line.startswith("all ")]
    assert totals == [["0", "0", "0", "(-)", "0"]] * 4


def test_what_has_no_numbers_is_told_of() -> None:
    crashed = replace(FIRST, cache_n=None, prompt_n=None, failures=(("crash", "it ended"),))
    untested = replace(VERDICT, requests=())
    run = Run({}, (replace(VERDICT, requests=(crashed,)), untested))
    assert list(rows(run))[-1] == "scenarios without a step (not tested, say): 1"
    assert next(sums(run)) == "requests without an answer, which are in no sum: 1"
