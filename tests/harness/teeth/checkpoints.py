"""What faults do to the scenarios of `test_checkpoints.py`."""

from __future__ import annotations

from tests.cache import test_checkpoints
from tests.harness.teeth.table import (
    ONE_SLOT,
    ONE_SLOT_CHAT,
    Family,
    Row,
    Signatures,
    lost,
    stale,
    wrong,
)

FORK = "test_fork"
WINDOW = "test_fork_within_the_window"
APPEND = "test_append"
REPEATS = "test_repeats"
FIRST = "test_first_turn_again"
EDITED = "test_edited_message"
REMOVED = "test_removed_text"

LESS_CLAIMED: Signatures = {
    FORK: lost("other", "one again"),
    WINDOW: lost("other"),
    APPEND: lost("turn 2", "turn 3", "turn 4"),
    REPEATS: lost("second", "third", "fourth"),
    FIRST: lost("turn 2", "turn 3", "turn 1 again"),
    EDITED: lost("edited"),
}

# Memory that cannot rewind: nothing is promised of a fork far back, nor of checkpoints that may
# have been given up.
LESS_OF_CHECKPOINTS: Signatures = {
    **LESS_CLAIMED,
    f"{FORK}-middle": lost("one again"),
    f"{FIRST}-default": lost("turn 2", "turn 3"),
    f"{EDITED}-default-second": frozenset(),
}

# All but the last token is right of what is repeated.
MORE_CLAIMED: Signatures = {
    FORK: stale("one", "other"),
    WINDOW: stale("one", "other"),
    APPEND: stale("turn 1", "turn 2", "turn 3", "turn 4"),
    REPEATS: stale("first", "another"),
    FIRST: stale("turn 1", "turn 2", "turn 3"),
    EDITED: stale("turn 1", "turn 2", "turn 3", "edited"),
    REMOVED: stale("whole", "without its middle"),
}

# The first reply is true, and so is the one before to the same text. A conversation that goes on
# with an answer that is not in the slot has its tokens read again.
ANOTHER_ANSWERED: Signatures = {
    FORK: wrong("other", "one again"),
    WINDOW: wrong("other"),
    REPEATS: wrong("another", "fourth"),
    FIRST: wrong("turn 2", "turn 3", "turn 1 again") | lost("turn 3"),
    EDITED: wrong("turn 2", "turn 3", "edited"),
}

TEXT_REWRITTEN: Signatures = {APPEND: wrong("turn 1", "turn 2", "turn 3", "turn 4")}

NO_PROMPT_CACHE: Signatures = {FORK: lost("one again"), REPEATS: lost("fourth")}

STATES_MOVED: Signatures = {REMOVED: stale("without its middle") | wrong("without its middle")}

TABLE = (
    Row("claims_less", ONE_SLOT, LESS_CLAIMED),
    Row("claims_more", ONE_SLOT, MORE_CLAIMED),
    Row("answers_another", ONE_SLOT, ANOTHER_ANSWERED, (FORK, WINDOW, REPEATS, FIRST)),
    Row("rewrites_text", ONE_SLOT, TEXT_REWRITTEN, (APPEND,)),
    Row("no_prompt_cache", ONE_SLOT, NO_PROMPT_CACHE),
    Row("claims_less", ONE_SLOT_CHAT, LESS_CLAIMED),
    Row("claims_more", ONE_SLOT_CHAT, MORE_CLAIMED),
    Row("answers_another", ONE_SLOT_CHAT, ANOTHER_ANSWERED),
    Row("claims_less", ONE_SLOT, LESS_OF_CHECKPOINTS, model="granitehybrid"),
    Row("claims_less", ONE_SLOT_CHAT, LESS_OF_CHECKPOINTS, model="granitehybrid"),
    Row("claims_more", ONE_SLOT, MORE_CLAIMED, (REMOVED,), model="mamba2"),
    Row(
        "moves_states",
        ONE_SLOT,
        STATES_MOVED,
        (REMOVED,),
        model="mamba2",
        known_bug=(f"test_checkpoints.py::{REMOVED}", ONE_SLOT),
    ),
)

FAMILY = Family(test_checkpoints, TABLE)
