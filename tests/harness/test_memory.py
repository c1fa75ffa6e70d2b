"""What each kind of memory promises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.memory import Checkpoints, Memory, promise

OTHER = pytest.mark.parametrize("memory", [Memory.SWA, Memory.RECURRENT, Memory.HYBRID])
PAST = Checkpoints(prompt_tokens=1600)


def of(shared: int, prompt: int, checkpoints: Checkpoints | None = PAST, *, memory: Memory) -> int:
    return promise(shared, prompt, checkpoints, memory=memory, ubatch=512)


def test_full_attention_promises_all_that_is_shared() -> None:
    assert of(1604, 1700, memory=Memory.DENSE) == 1604
    assert of(3, 1700, memory=Memory.DENSE) == 3
    assert of(1600, 1600, memory=Memory.DENSE) == 1599  # the last token is always read


@OTHER
def test_a_follow_up_reads_its_new_tokens_and_a_micro_batch(memory: Memory) -> None:
    assert of(1604, 1700, memory=memory) == 1604 - 512 - 8
    assert of(100, 200, Checkpoints(prompt_tokens=100), memory=memory) == 0


@OTHER
def test_an_identical_repeat_reads_eight_tokens(memory: Memory) -> None:
    assert of(1600, 1600, memory=memory) == 1600 - 8
    assert of(1600, 1600, replace(PAST, grown=True), memory=memory) == 1599 - 512 - 8


@OTHER
def test_nothing_is_promised_of_what_would_have_to_be_cut_too_far(memory: Memory) -> None:
    assert of(1600 - 512 - 4, 1700, memory=memory) == 1600 - 512 - 4 - 512 - 8
    assert of(1600 - 512 - 5, 1700, memory=memory) == 0


@OTHER
def test_nothing_is_promised_where_nothing_is_known(memory: Memory) -> None:
    assert of(1600, 1700, None, memory=memory) == 0
    assert of(1600, 1600, None, memory=memory) == 0


@OTHER
def test_a_message_can_be_written_anew(memory: Memory) -> None:
    """What stands before it is promised, but for its header."""
    chat = Checkpoints(prompt_tokens=5000, message_starts=(20, 1500, 3000))
    assert of(3000, 4000, chat, memory=memory) == 3000 - 512 - 8
    assert of(2999, 4000, chat, memory=memory) == 1500 - 512 - 8
    assert of(100, 4000, chat, memory=memory) == 0


@OTHER
def test_what_was_reused_has_no_new_checkpoints(memory: Memory) -> None:
    edited = replace(PAST, read_from=1590)
    assert of(1590, 1700, edited, memory=memory) == 1590 - 512 - 8
    assert of(1589, 1700, edited, memory=memory) == 0
