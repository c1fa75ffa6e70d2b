"""What a run says of each scenario: rows made here, no server."""

from __future__ import annotations

from dataclasses import replace

from harness.check import Status, accepting, check, reasons_of, status_of
from harness.ledger import Run, Verdict, VerdictRow
from tests.harness.test_compare import ERROR, FAILS, HOLDS, NOT_TESTED, UNSUPPORTED


def run(**scenarios: tuple[VerdictRow, ...]) -> Run:
    rows = (replace(row, scenario=name) for name, rows in scenarios.items() for row in rows)
    return Run({}, tuple(rows))


def test_a_configuration() -> None:
    rows = (FAILS, replace(FAILS, verdict=Verdict.KNOWN_BUG), ERROR, HOLDS, NOT_TESTED, UNSUPPORTED)
    assert [status_of(row) for row in rows] == [
        *(Status.FAILS, Status.ACCEPTED, Status.ERROR),
        *(Status.HOLDS, Status.NOT_TESTED, Status.NOT_TESTED),
    ]


def test_a_known_bug_is_accepted_by_its_issue() -> None:
    """One that looks like another issue, or like none, fails all the same."""
    ours, other = replace(FAILS, issue="#1"), replace(FAILS, issue="#2")
    found = check(accepting(run(a=(ours, HOLDS), b=(other,), c=(FAILS,)), ["#1"]))
    assert {one.scenario: one.status for one in found.outcomes} == {
        "a": Status.ACCEPTED,
        "b": Status.FAILS,
        "c": Status.FAILS,
    }


def test_what_was_found_before_an_error_counts() -> None:
    assert status_of(replace(ERROR, signature=("P: crash",))) is Status.FAILS


def test_a_scenario_is_what_its_worst_configuration_is() -> None:
    found = check(
        run(
            a=(HOLDS, NOT_TESTED),
            b=(NOT_TESTED, UNSUPPORTED),
            c=(HOLDS, ERROR),
            d=(NOT_TESTED, FAILS, HOLDS, ERROR),
            e=(HOLDS,),
        )
    )
    assert [(outcome.scenario, outcome.status) for outcome in found.outcomes] == [
        ("d", Status.FAILS),
        ("c", Status.ERROR),
        ("a", Status.HOLDS),
        ("e", Status.HOLDS),
        ("b", Status.NOT_TESTED),
    ]
    assert [found.scenarios(status) for status in Status] == [1, 1, 0, 2, 1]
    assert [found.configurations(status) for status in Status] == [1, 2, 0, 4, 4]
    assert found.not_tested == {"needs -np 1": 3, "the build has no --x": 1}


def test_a_configuration_may_have_several_reasons() -> None:
    both = replace(NOT_TESTED, reason="needs -np 1; needs -fa off")
    reasons = reasons_of([both, replace(NOT_TESTED, reason="needs -fa off")])
    assert list(reasons.items()) == [("needs -fa off", 2), ("needs -np 1", 1)]


def test_nothing_at_all() -> None:
    assert check(Run({}, ())).outcomes == ()
