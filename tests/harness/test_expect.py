"""Bounds on reuse, by claim and memory kind."""

from __future__ import annotations

import pytest

from harness.expect import Claim, Kind, Reuse
from harness.memory import Memory


def test_full_attention_promises_all_that_is_possible() -> None:
    assert Claim.PROMISED.bounds(
        relied_on=600, possible=600, prompt=610, memory=Memory.DENSE, ubatch=512
    ) == Reuse(600, 600)


@pytest.mark.parametrize("memory", [Memory.SWA, Memory.RECURRENT, Memory.HYBRID])
def test_other_memory_resumes_at_a_checkpoint(memory: Memory) -> None:
    follow_up = Claim.PROMISED.bounds(
        relied_on=1600, possible=1600, prompt=1700, memory=memory, ubatch=512
    )
    assert follow_up == Reuse(1600 - 512 - 8, 1600)
    repeat = Claim.PROMISED.bounds(
        relied_on=1600, possible=1600, prompt=1601, memory=memory, ubatch=512
    )
    assert repeat == Reuse(1601 - 8, 1600)
    short = Claim.PROMISED.bounds(
        relied_on=100, possible=100, prompt=200, memory=memory, ubatch=512
    )
    assert short == Reuse(0, 100)


def test_an_allowance_has_no_lower_bound() -> None:
    assert Claim.ALLOWED.bounds(
        relied_on=600, possible=600, prompt=601, memory=Memory.DENSE, ubatch=512
    ) == Reuse(0, 600)


def test_an_unjudged_step_has_no_bounds() -> None:
    assert (
        Claim.UNJUDGED.bounds(
            relied_on=600, possible=600, prompt=601, memory=Memory.DENSE, ubatch=512
        )
        is None
    )


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
    assert "599 tokens more were reused" in wrong.message


def test_more_may_be_reused_than_is_relied_on() -> None:
    bounds = Claim.PROMISED.bounds(
        relied_on=20, possible=600, prompt=610, memory=Memory.DENSE, ubatch=512
    )
    assert bounds == Reuse(20, 600)
