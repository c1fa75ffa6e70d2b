"""What may be reused at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.history import History, State, common_prefix
from harness.memory import Checkpoints, Memory
from harness.setting import Setting

NONE = Setting()
HALF = Setting.of({"A": 0.5})


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ((), (1,), 0),
        ((1, 2), (1, 2), 2),
        ((1, 2, 3), (1, 2), 2),
        ((1, 9), (1, 2), 1),
        ((9,), (1,), 0),
    ],
)
def test_common_prefix(one: tuple[int, ...], other: tuple[int, ...], shared: int) -> None:
    assert common_prefix(one, other) == shared
    assert common_prefix(other, one) == shared


def test_only_states_under_the_same_setting_count() -> None:
    history = History(slots=1, prompt_cache=True)
    history.record(State((1, 2, 3, 4), HALF), slot=0)
    assert history.possible((1, 2, 3, 9), HALF).tokens == 3
    assert history.possible((1, 2, 3, 9), NONE).tokens == 0
    assert history.possible((1, 2, 3, 9), Setting.of({"A": 1.0})).tokens == 0
    assert history.possible((1, 2, 3, 9), Setting.of({"B": 0.5})).tokens == 0


def test_the_longest_state_counts_and_one_token_is_always_read() -> None:
    history = History(slots=1, prompt_cache=True)
    history.record(State((1, 2), NONE), slot=0)
    history.record(State((1, 2, 3, 4), NONE), slot=0)
    history.record(State((1,), NONE), slot=0)
    assert history.possible((1, 2, 3, 4, 5), NONE).tokens == 4
    assert history.possible((1, 2, 3, 4), NONE).tokens == 3
    assert history.possible((1,), NONE).tokens == 0


def test_nothing_is_possible_at_first() -> None:
    assert History(slots=1, prompt_cache=True).possible((1, 2), NONE).tokens == 0


@pytest.mark.parametrize("slot", [0, None])
def test_one_slot_without_a_prompt_cache_holds_what_came_last(slot: int | None) -> None:
    history = History(slots=1, prompt_cache=False)
    history.record(State((1, 2, 3, 4), NONE), slot)
    history.record(State((1, 2, 9), NONE), slot)
    assert history.possible((1, 2, 3, 4, 5), NONE).tokens == 2
    assert history.in_slot(0) == State((1, 2, 9), NONE)
    assert history.certain


def test_slots_without_a_prompt_cache_hold_one_state_each() -> None:
    history = History(slots=2, prompt_cache=False)
    history.record(State((1, 2, 3), NONE), 0)
    history.record(State((5, 6, 7), NONE), 1)
    history.record(State((1, 9), NONE), 1)
    assert history.possible((1, 2, 3, 4), NONE).tokens == 3
    assert history.possible((5, 6, 7, 8), NONE).tokens == 0
    assert history.certain


def test_a_state_in_a_slot_nobody_named_may_be_anywhere() -> None:
    history = History(slots=2, prompt_cache=False)
    history.record(State((1, 2, 3), NONE), None)
    history.record(State((5, 6, 7), NONE), 0)
    assert history.possible((1, 2, 3, 4), NONE).tokens == 3
    assert not history.certain
    assert history.in_slot(1) is None


def test_with_a_prompt_cache_nothing_is_forgotten() -> None:
    history = History(slots=2, prompt_cache=True)
    history.record(State((1, 2, 3), NONE), 0)
    history.record(State((5, 6, 7), NONE), 0)
    history.record(State((8, 9), NONE), None)
    assert history.possible((1, 2, 3, 4), NONE).tokens == 3
    assert history.certain


def test_a_setting_forgets_adapters_at_zero_and_order() -> None:
    assert Setting.of({"A": 0.0, "B": 1}) == Setting.of({"B": 1.0})
    assert Setting.of({"B": 1.0, "A": 0.5}) == Setting.of({"A": 0.5, "B": 1.0})
    assert str(Setting.of({"B": 1.0, "A": 0.5})) == "A at 0.5 + B at 1"
    assert str(NONE) == "no adapter"


@pytest.mark.parametrize(
    ("prompt_cache", "slot", "relied_on"),
    [(False, 1, 1), (False, None, 4), (True, 1, 1), (True, None, 4)],
)
def test_a_slot_is_relied_on_for_what_it_has(
    prompt_cache: bool, slot: int | None, relied_on: int
) -> None:
    """What is in another one is not brought to it."""
    history = History(slots=2, prompt_cache=prompt_cache)
    history.record(State((1, 2, 3, 4), NONE), 0)
    history.record(State((1, 9, 9), NONE), 1)
    assert history.possible((1, 2, 3, 4, 5), NONE).tokens == 4
    assert promised(history, (1, 2, 3, 4, 5), slot=slot) == relied_on


def test_a_slot_that_was_never_used_has_nothing() -> None:
    history = History(slots=2, prompt_cache=False)
    history.record(State((1, 2, 3), NONE), 0)
    assert promised(history, (1, 2, 3, 4), slot=1) == 0


@pytest.mark.parametrize(("shared", "relied_on"), [(39, 29), (35, 25), (34, 0)])
def test_what_cannot_be_rewound_is_not_relied_on(shared: int, relied_on: int) -> None:
    """A prompt of 41 tokens; it resumes 4 tokens and a micro-batch of 2 before its end."""
    history = History(slots=1, prompt_cache=True)
    history.record(State(tuple(range(44)), NONE, Checkpoints(prompt_tokens=41)), 0)
    prompt = (*range(shared), 90, 91, 92)
    assert promised(history, prompt, memory=Memory.SWA) == relied_on
    assert history.possible(prompt, NONE).tokens == shared


@pytest.mark.parametrize(("kept", "left"), [(False, 0), (True, 39 - 2 - 8)])
def test_a_state_that_has_grown_is_not_there_by_itself(kept: bool, left: int) -> None:
    """A repeat of the first turn resumes at its checkpoints, if they stay."""
    history = History(slots=1, prompt_cache=True)
    first, answer = tuple(range(40)), (50, 51)
    checkpoints = Checkpoints(prompt_tokens=40, kept=kept)
    history.record(State((*first, *answer), NONE, checkpoints), 0)
    assert promised(history, first, memory=Memory.SWA) == 40 - 8
    longer = (*first, *answer, *range(60, 99))
    history.record(State(longer, NONE, replace(checkpoints, prompt_tokens=81)), 0)
    assert promised(history, first, memory=Memory.SWA) == left
    assert promised(history, first) == 39  # full attention


def test_a_state_that_was_displaced_is_there_as_it_was() -> None:
    history = History(slots=1, prompt_cache=True)
    first = tuple(range(40))
    history.record(State((*first, 50), NONE, Checkpoints(prompt_tokens=40)), 0)
    history.record(State((*range(30), *range(60, 99)), NONE, Checkpoints(prompt_tokens=69)), 0)
    assert promised(history, first, memory=Memory.SWA) == 40 - 8
    under_another = Setting.of({"A": 1.0})
    history.record(
        State((*first, 50, *range(60, 99)), under_another, Checkpoints(prompt_tokens=80)), 0
    )
    assert promised(history, first, memory=Memory.SWA) == 40 - 8


def test_a_prompt_cache_brings_to_a_slot_what_was_displaced() -> None:
    history = History(slots=2, prompt_cache=True)
    history.record(State((1, 2, 3, 4), NONE), 0)
    history.record(State((1, 9, 9), NONE), 0)
    assert promised(history, (1, 2, 3, 4, 5), slot=1) == 4


def test_a_copy_in_another_slot_stays_as_it_was() -> None:
    """Without a prompt cache nothing moves."""
    history = History(slots=2, prompt_cache=False)
    first = tuple(range(40))
    for slot in (0, 1):
        history.record(State((*first, 50), NONE, Checkpoints(prompt_tokens=40)), slot)
    longer = (*first, 50, *range(60, 99))
    history.record(State(longer, NONE, Checkpoints(prompt_tokens=80)), 0)
    assert promised(history, first, slot=1, memory=Memory.SWA) == 40 - 8
    assert promised(history, first, slot=0, memory=Memory.SWA) == 0


def promised(
    history: History,
    prompt: Sequence[int],
    *,
    slot: int | None = None,
    memory: Memory = Memory.DENSE,
) -> int:
    return history.promised(prompt, NONE, slot=slot, memory=memory, ubatch=2).tokens
