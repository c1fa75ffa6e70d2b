"""Bounds on reuse, by claim."""

from __future__ import annotations

import pytest

from harness.expect import Claim, Kind, Reuse


def test_a_promise_has_both_bounds() -> None:
    assert Claim.PROMISED.bounds(promised=20, possible=600) == Reuse(20, 600)


def test_an_allowance_has_no_lower_bound() -> None:
    assert Claim.ALLOWED.bounds(promised=20, possible=600) == Reuse(0, 600)


def test_an_unjudged_step_has_no_bounds() -> None:
    assert Claim.UNJUDGED.bounds(promised=20, possible=600) is None


@pytest.mark.parametrize(
    ("cache_n", "kind"),
    [(9, Kind.LOST_REUSE), (10, None), (20, None), (21, Kind.WRONG_REUSE)],
)
def test_both_bounds_are_judged(cache_n: int, kind: Kind | None) -> None:
    failure = Reuse(10, 20).judge(cache_n)
    assert (failure.kind if failure else None) is kind


def test_a_failure_counts_the_tokens() -> None:
    lost = Reuse(601, 601).judge(0)
    assert lost is not None
    assert "601 tokens were read again" in lost.message
    wrong = Reuse(0, 1).judge(600)
    assert wrong is not None
    assert "599 tokens were reused that may not be" in wrong.message
