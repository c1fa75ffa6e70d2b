"""What a run says of each scenario: rows made here, no server."""

from __future__ import annotations

from dataclasses import replace

from harness.check import LeftOut, Status, accepting, check, reasons_of, status_of
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


def test_a_scenario_is_what_its_worst_verdict_is_and_an_error_hides_none() -> None:
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
        ("a", Status.HOLDS),
        ("c", Status.HOLDS),
        ("e", Status.HOLDS),
        ("b", Status.NOT_TESTED),
    ]
    assert [found.scenarios(status) for status in Status] == [1, 0, 3, 0, 1]
    assert [found.configurations(status) for status in Status] == [1, 0, 4, 2, 4]
    assert found.not_tested == {"needs -np 1": 3, "the build has no --x": 1}


def test_a_configuration_may_have_several_reasons() -> None:
    both = replace(NOT_TESTED, reason="needs -np 1; needs -fa off")
    reasons = reasons_of([both, replace(NOT_TESTED, reason="needs -fa off")])
    assert list(reasons.items()) == [("needs -fa off", 2), ("needs -np 1", 1)]


def test_nothing_at_all() -> None:
    assert check(Run({}, ())).outcomes == ()


def test_what_a_run_expected_to_fail_is_no_reason_to_deploy() -> None:
    """pytest expects the known bugs of its own wheel; only the config file accepts any."""
    expected = replace(FAILS, verdict=Verdict.KNOWN_BUG, issue="#1")
    assert check(accepting(run(a=(expected,)), [])).may_deploy is False
    assert check(accepting(run(a=(expected,)), ["#1"])).may_deploy is True


def test_whether_to_deploy() -> None:
    accepted = replace(FAILS, verdict=Verdict.KNOWN_BUG)
    assert check(run(a=(HOLDS, NOT_TESTED), b=(accepted,))).may_deploy is True
    assert check(run(a=(HOLDS,), b=(FAILS, ERROR))).may_deploy is False
    assert check(run(a=(HOLDS, ERROR))).may_deploy is None
    assert check(run(a=(NOT_TESTED,))).may_deploy is None


def test_known_and_unknown_failures() -> None:
    known = replace(FAILS, issue="#1")
    found = check(run(a=(known, FAILS), b=(known,), c=(FAILS,)))
    assert (found.known_bugs, found.unknown_failures) == (("#1",), 2)


def test_an_error_with_all_of_a_model() -> None:
    other = replace(ERROR, model="mamba2")
    found = check(run(a=(HOLDS, other), b=(ERROR, other), c=(replace(other, reason="x"),)))
    told = [(one.reason, len(one.rows), one.models, one.scenarios) for one in found.troubles]
    assert sorted(told) == [
        ("ServerError: it ended", 3, (), ("a", "b")),
        ("x", 1, (), ("c",)),
    ]
    (whole,) = check(run(a=(HOLDS, other), b=(other,))).troubles
    assert whole.models == ("mamba2",)


def test_what_a_flag_leaves_out() -> None:
    one = replace(NOT_TESTED, reason="needs --parallel 1, args gives -np 4")
    both = replace(one, reason=f"{one.reason}; needs -fa off, --llama-arg gives -fa on")
    found = check(run(a=(one, both, NOT_TESTED)))
    assert found.left_out == (LeftOut("-np 4", "--parallel 1", 2), LeftOut("-fa on", "-fa off", 1))
    assert found.not_testable == {"needs -np 1": 1}
