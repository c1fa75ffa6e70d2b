"""What each kind of memory promises."""

from __future__ import annotations

import pytest

from harness.memory import Memory, Past, promised

OTHER = pytest.mark.parametrize("memory", [Memory.SWA, Memory.RECURRENT, Memory.HYBRID])
PAST = Past(prompt=1600)


def of(shared: int, prompt: int, past: Past = PAST, *, memory: Memory) -> int:
    return promised(shared, prompt, past, memory=memory, ubatch=512)


def test_full_attention_promises_all_that_is_shared() -> None:
    assert of(1604, 1700, memory=Memory.DENSE) == 1604
    assert of(3, 1700, memory=Memory.DENSE) == 3
    assert of(1600, 1600, memory=Memory.DENSE) == 1599  # the last token is always read


@OTHER
def test_a_follow_up_reads_its_new_tokens_and_a_micro_batch(memory: Memory) -> None:
    assert of(1604, 1700, memory=memory) == 1604 - 512 - 8
    assert of(100, 200, Past(prompt=100), memory=memory) == 0


@OTHER
def test_an_identical_repeat_reads_eight_tokens(memory: Memory) -> None:
    assert of(1600, 1600, memory=memory) == 1600 - 8
    assert of(1600, 1600, Past(prompt=1600, grown=True), memory=memory) == 1599 - 512 - 8


@OTHER
def test_nothing_is_promised_of_what_would_have_to_be_cut_too_far(memory: Memory) -> None:
    assert of(1600 - 512 - 4, 1700, memory=memory) == 1600 - 512 - 4 - 512 - 8
    assert of(1600 - 512 - 5, 1700, memory=memory) == 0


@OTHER
def test_a_message_can_be_written_anew(memory: Memory) -> None:
    """What stands before it is promised, but for its header."""
    past = Past(prompt=5000, messages=(20, 1500, 3000))
    assert of(3000, 4000, past, memory=memory) == 3000 - 512 - 8
    assert of(2999, 4000, past, memory=memory) == 1500 - 512 - 8
    assert of(100, 4000, past, memory=memory) == 0
