"""What counts as a change between two runs: rows made here, no server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.compare import Change, Kind, compare
from harness.ledger import RequestRow, Run, Verdict, VerdictRow
from tests.harness.test_ledger import REQUEST, VERDICT

P = RequestRow(step="P", route="completion", prompt_tokens=100, cache_n=0, prompt_n=100)
AGAIN = replace(P, step="P again", cache_n=99, prompt_n=1)
LESS = replace(AGAIN, cache_n=40, prompt_n=60)
LOST = replace(REQUEST, step="P again", prompt_tokens=100, cache_n=0, prompt_n=100)

HOLDS = replace(VERDICT, verdict=Verdict.HOLDS, signature=(), issue=None, requests=(P, AGAIN))
FAILS = replace(HOLDS, verdict=Verdict.FAILED, signature=("P again: lost_reuse",))
ERROR = replace(HOLDS, verdict=Verdict.ERROR, reason="ServerError: it ended", requests=())
NOT_TESTED = replace(ERROR, verdict=Verdict.NOT_TESTED, reason="needs -np 1")
UNSUPPORTED = replace(ERROR, verdict=Verdict.UNSUPPORTED, reason="the build has no --x")


def failing(*signature: str) -> VerdictRow:
    return replace(FAILS, signature=signature)


def changes(before: VerdictRow | None, after: VerdictRow | None) -> tuple[Change, ...]:
    runs = (Run({}, () if row is None else (row,)) for row in (before, after))
    return compare(*runs).changes


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (HOLDS, FAILS, Kind.BROKEN),
        (HOLDS, ERROR, Kind.BROKEN),
        (FAILS, ERROR, Kind.BROKEN),
        (FAILS, failing("P again: crash"), Kind.BROKEN),
        (FAILS, failing("P again: lost_reuse", "Q: lost_reuse"), Kind.BROKEN),
        (HOLDS, replace(ERROR, signature=("P: crash",)), Kind.BROKEN),
        (replace(FAILS, verdict=Verdict.KNOWN_BUG), failing("P: crash"), Kind.BROKEN),
        (FAILS, HOLDS, Kind.FIXED),
        (FAILS, replace(HOLDS, verdict=Verdict.KNOWN_BUG_GONE), Kind.FIXED),
        (failing("P again: lost_reuse", "Q: lost_reuse"), FAILS, Kind.FIXED),
        (HOLDS, NOT_TESTED, Kind.NO_LONGER_TESTED),
        (FAILS, UNSUPPORTED, Kind.NO_LONGER_TESTED),
        (HOLDS, None, Kind.NO_LONGER_TESTED),
        (NOT_TESTED, HOLDS, Kind.NEWLY_TESTED),
        (UNSUPPORTED, FAILS, Kind.NEWLY_TESTED),
        (ERROR, FAILS, Kind.NEWLY_TESTED),
        (None, HOLDS, Kind.NEWLY_TESTED),
        (HOLDS, replace(HOLDS, requests=(P, LESS)), Kind.REUSE_DOWN),
        (replace(HOLDS, requests=(P, LESS)), HOLDS, Kind.REUSE_UP),
        (FAILS, replace(FAILS, requests=(P, LESS)), Kind.REUSE_DOWN),
    ],
)
def test_kinds(before: VerdictRow | None, after: VerdictRow | None, kind: Kind) -> None:
    (change,) = changes(before, after)
    assert change.kind is kind
    assert (change.before, change.after) == (before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (HOLDS, HOLDS),
        (FAILS, FAILS),
        (replace(FAILS, verdict=Verdict.KNOWN_BUG), FAILS),
        (HOLDS, replace(HOLDS, build="b2", seconds=9.0, argv=("other",))),
        (ERROR, NOT_TESTED),
        (None, ERROR),
        # What is of another length cannot be compared: an answer was another one.
        (HOLDS, replace(HOLDS, requests=(P, replace(LESS, prompt_tokens=99)))),
        (HOLDS, replace(HOLDS, requests=(P,))),
        (HOLDS, replace(HOLDS, requests=(P, replace(LESS, cache_n=None)))),
    ],
)
def test_no_change(before: VerdictRow | None, after: VerdictRow | None) -> None:
    assert changes(before, after) == ()


def test_what_broke_is_told_by_step() -> None:
    after = replace(FAILS, requests=(P, LOST))
    (change,) = changes(HOLDS, after)
    assert (change.new, change.gone) == (("P again: lost_reuse",), ())
    (step,) = change.steps
    assert (step.step, step.before, step.after, step.tokens) == ("P again", AGAIN, LOST, -99)


def test_what_is_fixed_is_told_by_step() -> None:
    (change,) = changes(replace(FAILS, requests=(P, LOST)), HOLDS)
    assert (change.new, change.gone) == ((), ("P again: lost_reuse",))
    assert [(step.step, step.tokens) for step in change.steps] == [("P again", 99)]


def test_a_step_that_is_not_reached_any_more() -> None:
    crashed = replace(failing("P: crash"), requests=(replace(P, cache_n=None),))
    (change,) = changes(HOLDS, crashed)
    assert [(step.step, step.tokens) for step in change.steps] == [("P", None)]
    (change,) = changes(crashed, replace(FAILS, requests=(P, LOST)))
    assert [(step.step, step.before) for step in change.steps] == [("P again", None)]


def test_steps_of_one_name_are_told_apart() -> None:
    twice = replace(HOLDS, requests=(P, AGAIN, AGAIN))
    (change,) = changes(twice, replace(HOLDS, requests=(P, AGAIN, LESS)))
    assert [(step.step, step.tokens) for step in change.steps] == [("P again", -59)]


def test_a_step_that_reuses_more_makes_up_for_nothing() -> None:
    more = replace(P, cache_n=100, prompt_n=0)
    (change,) = changes(HOLDS, replace(HOLDS, requests=(more, LESS)))
    assert change.kind is Kind.REUSE_DOWN
    assert [step.tokens for step in change.steps] == [100, -59]
    assert change.tokens == 41


def test_scenarios_are_told_apart_by_configuration_and_model() -> None:
    others = [replace(HOLDS, configuration="np4"), replace(HOLDS, model="gemma3")]
    after = (FAILS, *others)
    found = compare(Run({}, (HOLDS, *others)), Run({}, after[::-1]))
    assert [change.after for change in found.changes] == [FAILS]
    assert (found.unchanged, found.compared, found.untested) == (2, 3, 0)


def test_the_worst_comes_first_whatever_the_order() -> None:
    pairs = {
        "a": (FAILS, HOLDS),
        "c": (HOLDS, FAILS),
        "b": (HOLDS, FAILS),
        "d": (NOT_TESTED, NOT_TESTED),
        "e": (HOLDS, HOLDS),
    }
    runs = (
        Run({}, tuple(replace(pair[side], scenario=name) for name, pair in pairs.items()))
        for side in (0, 1)
    )
    found = compare(*runs)
    assert [change.row.scenario for change in found.changes] == ["b", "c", "a"]
    assert (found.unchanged, found.compared, found.untested) == (1, 4, 1)
    assert {kind: n for kind, n in found.counts.items() if n} == {Kind.BROKEN: 2, Kind.FIXED: 1}
