"""Right and wrong answers, by cell and against a cold run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.answers import (
    BASE_TOLERANCE,
    Tolerance,
    difference,
    other_text,
    unlike_cold,
    wrong_cell,
)
from harness.models.synthetic.vocabulary import oracle
from harness.models.synthetic.vocabulary import token as token_id
from harness.oracle import CELL_OF, LEVELS
from harness.replies import Reply, TokenProbs
from tests.harness.replying import completion, token


def answer(*tokens: TokenProbs, text: str = "") -> Reply:
    return replace(completion(tokens=tokens), text=text)


def cell_of_answer(text: str, scales: dict[str, float]) -> str | None:
    return wrong_cell(oracle(), [token(token_id(c)) for c in text], scales)


def test_every_pair_of_levels_has_a_cell_and_no_character_is_in_two() -> None:
    assert set(CELL_OF.values()) == {(a, b) for a in LEVELS for b in LEVELS}
    printable = {chr(c) for c in range(0x21, 0x7F)} - {"#"}
    assert set(CELL_OF) == printable


def test_an_answer_in_the_right_cell() -> None:
    assert cell_of_answer("abcd", {"A": 0.0, "B": 0.0}) is None
    assert cell_of_answer("ABCD", {"A": 0.5}) is None
    assert cell_of_answer("0123", {"A": 1.0, "B": 0.0}) is None


def test_one_token_in_another_cell_is_wrong() -> None:
    wrong = cell_of_answer("abcZ", {"A": 0.0})
    assert wrong == (
        "answer token 4 is in the cell of A at 0.5, B at 1, "
        "a right one is in that of A at 0, B at 0"
    )


def test_a_token_that_is_no_character_is_wrong() -> None:
    assert wrong_cell(oracle(), [token(2)], {}) is not None


def test_scales_no_cell_tells_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"0\.25"):
        cell_of_answer("a", {"A": 0.25})
    with pytest.raises(ValueError, match="C"):
        cell_of_answer("a", {"C": 1.0})


def test_difference_is_the_largest_on_either_side() -> None:
    cold, warm = token(1, (2, -3.0)), token(1, (2, -3.5), logprob=-0.2)
    assert difference(cold, warm) == pytest.approx(0.5)
    assert difference(warm, cold) == pytest.approx(0.5)
    assert difference(cold, cold) == 0


def test_a_token_the_other_side_does_not_list_counts_at_its_lowest() -> None:
    assert difference(token(1, (2, -4.0)), token(3, (4, -4.0))) == pytest.approx(3.9)


def test_dust_far_down_does_not_count() -> None:
    assert difference(token(1, (2, -30.0)), token(1, (2, -31.0))) == 0


def test_first_token_beyond_the_tolerance() -> None:
    cold = answer(token(1, (2, -3.0)))
    within = answer(token(1, (2, -3.0 - BASE_TOLERANCE / 2)))
    beyond = answer(token(1, (2, -3.0 - BASE_TOLERANCE * 2)))
    assert unlike_cold(cold, within, Tolerance()) is None
    assert "first-token logprobs" in (unlike_cold(cold, beyond, Tolerance()) or "")


def test_tokens_count_up_to_the_first_undecided_position() -> None:
    sure, undecided = token(1, (2, -3.0)), token(1, (2, -0.1001))
    assert unlike_cold(answer(sure, sure), answer(sure, token(7)), Tolerance()) is not None
    cold, warm = answer(sure, undecided, sure), answer(sure, token(7), token(8), text="other")
    assert unlike_cold(cold, warm, Tolerance()) is None


def test_the_text_is_an_answers_too() -> None:
    sure = token(1, (2, -3.0))
    wrong = unlike_cold(answer(sure), answer(sure, text="other"), Tolerance())
    assert wrong == "the text is not the cold run's, its tokens are"
    tokens = tuple(token(token_id(c)) for c in "abcd")
    assert other_text(oracle(), answer(*tokens, text="abcd")) is None
    assert other_text(oracle(), answer(*tokens, text="zzzz")) is not None


def test_a_tolerance_follows_the_noise_and_tells_while_the_signal_is_larger() -> None:
    assert Tolerance().limit == BASE_TOLERANCE
    assert Tolerance(noise=0.01, signal=5.0).limit == pytest.approx(0.08)
    assert Tolerance(noise=0.01, signal=5.0).tells
    assert not Tolerance(noise=0.01, signal=0.1).tells
    assert not Tolerance(noise=5.0, signal=6.0).tells


def test_a_control_without_noise_is_not_trusted() -> None:
    """Right answers are as far as 1e-2 apart there, though many are equal to the last bit."""
    quiet = Tolerance.of_control(noise=0.0, signal=0.8)
    assert 1e-2 < quiet.limit < 2.5e-2  # nor may one stale token be let through
    assert quiet.tells
    loud = Tolerance.of_control(noise=0.02, signal=0.8)
    assert loud.limit == pytest.approx(0.16)
    assert loud.tells
    assert not Tolerance.of_control(noise=0.1, signal=0.8).tells
    assert not Tolerance.of_control(noise=0.0, signal=0.04).tells
    assert not Tolerance.of_control(noise=0.0, signal=0.0).tells


def test_a_control_that_reused_nothing_tells_nothing() -> None:
    assert not Tolerance.of_control(noise=None, signal=5.0).tells
