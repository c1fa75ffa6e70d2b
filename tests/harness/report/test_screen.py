"""The first screen of a result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.cause import Cause
from harness.errors import Selectable
from harness.ledger import Reason, Verdict, VerdictRow
from harness.report.screen import Colour, Line, is_new, sameness, screen
from tests.harness.test_ledger import VERDICT

TITLES = {"#30275": "restored, then cleared", "unreported: window lost": "after a restore"}
HOLDS = replace(VERDICT, verdict=Verdict.HOLDS, signature=(), issue=None, bug=None)
NEW = replace(VERDICT, verdict=Verdict.FAILED, issue=None, bug=None)
LIKE = replace(VERDICT, verdict=Verdict.FAILED)
WINDOW = replace(LIKE, issue="unreported: window lost")
GONE = replace(VERDICT, verdict=Verdict.KNOWN_BUG_GONE, signature=())
ERROR = replace(HOLDS, verdict=Verdict.ERROR, reason="mamba2 does not start: it ended")
UNTESTED = replace(HOLDS, verdict=Verdict.NOT_TESTED, reason="needs --parallel 1")


def shown(rows: Sequence[VerdictRow], width: int = 80) -> list[Line]:
    return list(screen(rows, width=width, titles=TITLES, more="more: -v"))


def texts(rows: Sequence[VerdictRow], width: int = 80) -> list[str]:
    return [line.text for line in shown(rows, width)]


@pytest.mark.parametrize(
    ("rows", "sentence", "colour"),
    [
        ([HOLDS], "1 holds", Colour.GOOD),
        ([VERDICT, HOLDS, HOLDS], "1 fails as 1 known bug does, nothing new; 2 hold", Colour.GOOD),
        ([LIKE, LIKE, HOLDS], "2 failed, all like 1 known bug, nothing new; 1 holds", Colour.BAD),
        ([LIKE, WINDOW], "2 failed, all like 2 known bugs, nothing new", Colour.BAD),
        ([NEW, LIKE], "1 failed like nothing known; 1 failed like 1 known bug", Colour.BAD),
        ([GONE, HOLDS], "1 no longer shows a known bug; 1 holds", Colour.BAD),
        ([ERROR, UNTESTED], "nothing was found out; 1 gave no verdict; 1 not tested", Colour.BAD),
        ([UNTESTED], "nothing was found out; 1 not tested", Colour.KNOWN),
        ([ERROR, HOLDS], "1 gave no verdict; 1 holds", Colour.BAD),
    ],
)
def test_the_verdict_comes_first(rows: list[VerdictRow], sentence: str, colour: Colour) -> None:
    assert shown(rows)[0] == Line(f"b10434: {sentence}", colour)


def test_what_failed_before_an_error_is_new_all_the_same() -> None:
    row = replace(ERROR, signature=("P: wrong_answer",), requests=NEW.requests)
    lines = texts([row, VERDICT, GONE], width=200)
    assert "1 failed like nothing known" in lines[0]
    assert "1 fails as 1 known bug does;" in lines[0]
    assert "NEW test_lora.py::test_x" in lines
    assert "    P: wrong_answer" in lines


def test_each_build_has_a_verdict_of_its_own() -> None:
    other = replace(NEW, build="b11434")
    lines = texts([HOLDS, other])
    assert lines[0] == "b10434: 1 holds"
    assert lines[1].startswith("b11434: 1 failed like nothing known")
    assert "NEW test_lora.py::test_x on b11434" in lines


def test_what_is_new_is_in_full_and_known_bugs_have_a_line() -> None:
    other = replace(NEW, configuration="np1-nokvu-completion")
    lines = texts([NEW, other, LIKE, LIKE, LIKE, WINDOW, HOLDS])
    at = lines.index("NEW test_lora.py::test_x")
    assert lines[at + 1 : at + 5] == [
        "    P again: lost_reuse",
        "    cache_n/prompt_n: 0/609",
        f"    why: {Cause.EVICTED}: 'Q' came",
        "    in: llama-np1-{kvu,nokvu}-completion",
    ]
    assert lines.count("NEW test_lora.py::test_x") == 1
    assert lines.index("3  #30275      restored, then cleared") > at
    assert "1  unreported  window lost: after a restore" in lines
    assert "file          holds  known bug  new" in lines
    assert "test_lora.py      1          4    2" in lines
    assert lines[-1] == "more: -v"


def test_counts_of_known_bugs_are_aligned() -> None:
    lines = texts([LIKE] * 12 + [WINDOW])
    assert "12  #30275      restored, then cleared" in lines
    assert " 1  unreported  window lost: after a restore" in lines


def test_a_server_that_does_not_start_is_one_line() -> None:
    others = replace(UNTESTED, reason=ERROR.reason)
    lines = texts([ERROR, others, others, HOLDS])
    assert f"NO VERDICT {ERROR.reason} (1, 2 not tested for it)" in lines
    assert not any(line.startswith("not tested: ") for line in lines)


def test_reasons_not_to_be_tested_are_few() -> None:
    rows = [replace(UNTESTED, reason=f"needs {n}") for n in range(9)]
    reasons = [line for line in texts(rows) if line.startswith("not tested: ")]
    assert len(reasons) == 6
    assert reasons[-1] == "not tested: for 4 more reasons (-v)"


def test_what_an_attached_server_fits() -> None:
    rows = [replace(UNTESTED, reason=Selectable.REASON), UNTESTED]
    lines = texts(rows)
    assert "    test_lora.py::test_x[llama-np1-kvu-completion]" in lines
    assert lines.count("not tested: 1 configuration: needs --parallel 1") == 1


@pytest.mark.parametrize("width", [80, 120, 200])
def test_lines_fit_the_terminal(width: int) -> None:
    why = Reason(cause=Cause.EVICTED, text="it was large " * 30)
    places = [f"np{n}-{kv}-chat-wide0" for n in range(9) for kv in ("kvu", "nokvu")]
    request = replace(VERDICT.requests[0], reason=why)
    new = [replace(NEW, configuration=place, requests=(request,) * 12) for place in places]
    rows = [*new, LIKE, WINDOW, GONE, replace(ERROR, reason="so it was " * 40), UNTESTED]
    lines = shown(rows, width)
    assert max(len(line.text) for line in lines) <= width
    assert " ".join("".join(line.text for line in lines).split()).count("it was large") == 30


def test_what_no_terminal_can_show_is_a_question_mark() -> None:
    assert "NEW test_lora.py::test_?[31m" in texts(
        [replace(NEW, scenario="test_lora.py::test_\x1b[31m")]
    )


def test_one_example_stands_for_all_that_failed_the_same_way() -> None:
    elsewhere = replace(NEW, scenario="test_probes.py::test_y", signature=("Q: lost_reuse",))
    assert sameness(NEW) == sameness(elsewhere)
    worse = replace(NEW, signature=("P again: wrong_answer",))
    consumed = Reason(cause=Cause.CONSUMED, text="so it was")
    for_another_reason = replace(NEW, requests=(replace(NEW.requests[0], reason=consumed),))
    assert len({sameness(row) for row in (NEW, worse, for_another_reason, LIKE, GONE, ERROR)}) == 6
    assert [is_new(row) for row in (NEW, LIKE, VERDICT, GONE)] == [True, False, False, False]
