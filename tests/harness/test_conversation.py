"""Which prompts are of one conversation."""

from __future__ import annotations

from harness.conversation import Conversations


def test_a_prompt_that_has_most_of_an_earlier_one_goes_on_with_it() -> None:
    conversations = Conversations()
    assert conversations.of("turn 1", range(10)) == "turn 1"
    assert conversations.of("turn 2", range(20)) == "turn 1"
    assert conversations.of("again", range(10)) == "turn 1"
    assert conversations.of("edited", [*range(6), 99, 98]) == "turn 1"


def test_a_prompt_that_shares_half_or_less_is_another_one() -> None:
    conversations = Conversations()
    conversations.of("P", range(10))
    assert conversations.of("Q", [*range(5), 99, 98]) == "Q"
    assert conversations.of("Q, next turn", [*range(5), 99, 98, 97]) == "Q"
    assert conversations.of("P, next turn", range(12)) == "P"
