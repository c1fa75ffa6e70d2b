"""The summary table."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from harness.cause import Cause
from harness.ledger import ColdRow, Reason, RequestRow, SlotFileRow, Verdict, VerdictRow
from harness.report.terminal import abbreviated, summary
from tests.harness.test_ledger import VERDICT


@pytest.mark.parametrize(
    ("configurations", "short"),
    [
        (["np1-kvu-chat"], "np1-kvu-chat"),
        (["np1-kvu-chat", "np1-nokvu-chat"], "np1-{kvu,nokvu}-chat"),
        (
            [f"{n}-{k}-chat" for n in ("np1", "np4") for k in ("kvu", "nokvu")],
            "{np1,np4}-{kvu,nokvu}-chat",
        ),
        (
            ["np1-kvu-chat", "np1-nokvu-chat", "np4-kvu-chat"],
            "np1-{kvu,nokvu}-chat np4-kvu-chat",
        ),
        (["np1-kvu-a", "np1-nokvu-b"], "np1-kvu-a np1-nokvu-b"),
        (
            [f"{m}-{where}" for m in "ab" for where in ("np1-kvu", "np4-kvu", "np4-nokvu")],
            "{a,b}-np1-kvu {a,b}-np4-{kvu,nokvu}",
        ),
        (["np4-kvu", "np1-kvu", "b-np1-kvu"], "b-np1-kvu {np1,np4}-kvu"),
        ([""], ""),
    ],
)
def test_configurations_are_abbreviated(configurations: list[str], short: str) -> None:
    assert abbreviated(configurations) == short


def test_configurations_with_the_same_outcome_share_a_row() -> None:
    other = replace(VERDICT, configuration="np1-nokvu-completion")
    lines = summary([VERDICT, other], 400)
    assert len(lines) == 8  # head, one row, what the bug is, why (4), totals
    for part in ("test_lora.py::test_x", "0/609", "known bug", "#30275", "P again: lost_reuse"):
        assert part in lines[1]
    assert lines[1].endswith("np1-{kvu,nokvu}-completion")
    assert lines[2].startswith("#30275: It is thrown away. http")
    assert lines[5].split()[-4:] == ["2", "1202", "test_x", "(2)"]
    assert lines[-1] == "scenarios: 2 known bug"


def test_failing_steps_are_summed_by_reason() -> None:
    def failed(scenario: str, cause: Cause, again: int) -> VerdictRow:
        reason = Reason(cause=cause, text="so it was")
        (row,) = VERDICT.requests
        return replace(
            VERDICT,
            scenario=f"test_x.py::{scenario}",
            requests=(replace(row, reason=reason, read_again=again),),
        )

    evicted = [failed(f"test_{name}", Cause.EVICTED, 10) for name in "aabbcde"]
    consumed = failed("test_a", Cause.CONSUMED, 500)
    lines = summary([*evicted, consumed, failed("test_a", Cause.FROM_SLOT, 0)], 400)
    at = next(i for i, line in enumerate(lines) if line.startswith("why steps failed"))
    assert lines[at + 1].split()[-4:] == ["1", "-", "test_a", "(1)"]  # the worse kind comes first
    assert lines[at + 2].split()[-4:] == ["1", "500", "test_a", "(1)"]
    assert re.split(" {2,}", lines[at + 3])[1:3] == ["7", "70"]
    assert lines[at + 3].endswith("test_a (2), test_b (2), test_c (1) and 2 more")


def test_a_step_that_did_not_fail_is_no_failure_with_a_reason() -> None:
    (row,) = VERDICT.requests
    reason = Reason(cause=Cause.EVICTED, text="so it was")
    held = replace(VERDICT, requests=(replace(row, failures=(), reason=reason),))
    assert not any("why" in line for line in summary([held], 400))


def test_a_failure_that_looks_like_a_known_bug_is_told_from_one() -> None:
    failed = replace(VERDICT, verdict=Verdict.FAILED)
    assert " failed   like #30275 " in summary([failed], 400)[1]


def test_what_answers_were_held_to() -> None:
    """A line for each build, and for what noise hid; nothing where no control was needed."""

    def row(build: str, *cold: ColdRow) -> VerdictRow:
        asked = RequestRow(step="P", route="completion", prompt_tokens=9)
        return replace(VERDICT, build=build, requests=tuple(replace(asked, cold=c) for c in cold))

    judged = ColdRow(limit=0.0625, noise=0.004, signal=1.0, apart=0.0)
    further = replace(judged, limit=0.125, noise=0.015, apart=0.25)
    hidden = ColdRow(limit=2.4, noise=0.3, signal=0.9)
    nothing_reused = ColdRow(limit=0.02, signal=0.9)
    rows = [row("one", judged, further, hidden, ColdRow(limit=2e-3, apart=0.0))]
    rows.append(row("other", judged, nothing_reused))
    assert [line for line in summary(rows, 400) if line.startswith("answers")] == [
        "answers on one: 2 judged, 0.0e+00 to 2.5e-01 nats from a cold run's, "
        "6.2e-02 to 1.2e-01 allowed; control: noise 4.0e-03 to 1.5e-02, "
        "other adapters or text 1.0e+00",
        "answers on one: 1 not judged; control: noise 3.0e-01, other adapters or text 9.0e-01",
        "answers on other: 1 judged, 0.0e+00 nats from a cold run's, "
        "6.2e-02 allowed; control: noise 4.0e-03, other adapters or text 1.0e+00",
        "answers on other: 1 not judged; control: noise unknown, other adapters or text 9.0e-01",
    ]


def test_kinds_of_a_step_stand_together() -> None:
    row = replace(VERDICT, signature=("P, x: wrong_answer", "P, x: wrong_reuse", "Q: crash"))
    assert "P, x: wrong_answer + wrong_reuse; Q: crash" in summary([row], 400)[1]


def test_builds_are_told_apart_only_when_there_are_several() -> None:
    other = replace(VERDICT, build="b11434")
    assert "b10434" not in "\n".join(summary([VERDICT], 400))
    assert "b11434" in "\n".join(summary([VERDICT, other], 400))


def test_what_was_not_tested_is_listed_with_its_reason() -> None:
    row = replace(
        VERDICT, verdict=Verdict.NOT_TESTED, reason="needs adapter B", requests=(), issue=None
    )
    lines = summary([row, row], 400)
    assert lines == [
        "not tested: 2 configurations: needs adapter B",
        "scenarios: 2 not tested",
    ]


def test_how_to_start_a_server_is_told_of_a_few() -> None:
    def row(number: int, slots: int) -> VerdictRow:
        return replace(
            VERDICT,
            configuration=f"c{number}",
            verdict=Verdict.NOT_TESTED,
            reason="no",
            requests=(),
            issue=None,
            start_as=("a server", "-np", str(slots)),
        )

    few = [row(1, 1), row(2, 1), row(3, 2), row(4, 4)]
    assert summary(few, 400)[1:-1] == [
        "for test_lora.py::test_x[c1] and 1 more start it as: 'a server' -np 1",
        "for test_lora.py::test_x[c3] start it as: 'a server' -np 2",
        "for test_lora.py::test_x[c4] start it as: 'a server' -np 4",
    ]
    assert summary([*few, row(5, 8)], 400)[1:-1] == [
        "to see how to start a server for one of these, select it alone (-k)"
    ]


def test_large_slot_files_say_how_fast_they_were_read() -> None:
    def with_file(size: int) -> VerdictRow:
        file = SlotFileRow(tokens=30_000, bytes=size, ms=10.0)
        return replace(VERDICT, requests=(RequestRow(step="restore", route="restore", file=file),))

    def told(*sizes: int) -> list[str]:
        return [line for line in summary([*map(with_file, sizes)], 400) if "slot files" in line]

    where = "slot files on b10434, test_lora.py::test_x"
    assert told(15_000_000) == [f"{where}: restore at 1500 MB/s"]
    assert told(15_000_000, 10_000_000) == [f"{where}: restore at 1000 to 1500 MB/s"]
    assert "slot files" not in "\n".join(summary([with_file(900_000)], 400))
