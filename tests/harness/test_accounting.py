"""Each rule of accounting: kept by an honest reply, broken by one that is not."""

from __future__ import annotations

import pytest

from harness.accounting import violations
from harness.expect import Kind
from harness.replies import Reply
from tests.harness.replying import completion, openai, token


@pytest.mark.parametrize("reply", [completion(), completion(cache_n=9, prompt_n=1), openai()])
def test_an_honest_reply_breaks_no_rule(reply: Reply) -> None:
    assert violations(reply, prompt_tokens=10) == ()


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (completion(cache_n=3, prompt_n=10, prompt_tokens=10), "cache_n 3 + prompt_n 10"),
        (completion(cache_n=1), "11 by the reply"),
        (completion(cache_n=10, prompt_n=0), "out of range"),
        (completion(cache_n=-1, prompt_n=11), "out of range"),
        (completion(tokens_cached=10), "tokens_cached 10"),
        (completion(tokens=(token(5), token(6))), "2 tokens were reported"),
        (openai(cached_tokens=3), "usage.cached_tokens 3"),
        (openai(completion_tokens=3), "usage.completion_tokens 3"),
    ],
)
def test_a_broken_rule_is_named(reply: Reply, words: str) -> None:
    (failure,) = violations(reply, prompt_tokens=10)
    assert failure.kind is Kind.ACCOUNTING
    assert words in failure.message


def test_fewer_tokens_than_were_asked_for() -> None:
    (failure,) = violations(completion(predicted_n=1), prompt_tokens=10, n_predict=4)
    assert failure.message == "4 tokens were asked for, predicted_n 1"


def test_a_context_shift_drops_tokens_from_the_slot() -> None:
    assert violations(completion(tokens_cached=5, truncated=True), prompt_tokens=10) == ()


def test_another_slot_than_asked_for() -> None:
    (failure,) = violations(completion(id_slot=3), prompt_tokens=10, id_slot=0)
    assert failure.message == "slot 0 was asked for, slot 3 answered"
    assert violations(completion(id_slot=3), prompt_tokens=10) == ()
