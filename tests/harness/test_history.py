"""What may be reused at most."""

from __future__ import annotations

import pytest

from harness.history import History, common_prefix
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
    history = History()
    history.add((1, 2, 3, 4), HALF)
    assert history.possible((1, 2, 3, 9), HALF) == 3
    assert history.possible((1, 2, 3, 9), NONE) == 0
    assert history.possible((1, 2, 3, 9), Setting.of({"A": 1.0})) == 0
    assert history.possible((1, 2, 3, 9), Setting.of({"B": 0.5})) == 0


def test_the_longest_state_counts_and_one_token_is_always_read() -> None:
    history = History()
    history.add((1, 2), NONE)
    history.add((1, 2, 3, 4), NONE)
    history.add((1,), NONE)
    assert history.possible((1, 2, 3, 4, 5), NONE) == 4
    assert history.possible((1, 2, 3, 4), NONE) == 3
    assert history.possible((1,), NONE) == 0


def test_nothing_is_possible_at_first() -> None:
    assert History().possible((1, 2), NONE) == 0


def test_a_setting_forgets_adapters_at_zero_and_order() -> None:
    assert Setting.of({"A": 0.0, "B": 1}) == Setting.of({"B": 1.0})
    assert Setting.of({"B": 1.0, "A": 0.5}) == Setting.of({"A": 0.5, "B": 1.0})
    assert str(Setting.of({"B": 1.0, "A": 0.5})) == "A at 0.5 + B at 1"
    assert str(NONE) == "no adapter"
