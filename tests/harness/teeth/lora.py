"""What faults do to the scenarios of `test_lora.py`."""

from __future__ import annotations

from collections.abc import Mapping

from harness.expect import Kind
from tests.cache import test_lora
from tests.harness.teeth.table import (
    FOUR_SLOTS,
    FOUR_SLOTS_CHAT,
    FOUR_UNIFIED,
    ONE_SLOT,
    ONE_SLOT_CHAT,
    Family,
    Row,
    Signatures,
    accounting,
    failed,
    lost,
    stale,
    wrong,
)

ARTICLE = "test_article"
SAME_ADAPTER = "test_same_adapter_comes_back"
OTHER_SCALE = "test_other_scale_comes_back"
OTHER_ADAPTER = "test_other_adapter_comes_back"
NONE_NAMED = "test_no_adapter_named_after_one"
SERVER_WIDE = "test_server_wide_scale_changes"
SAME_SLOT = "test_other_adapter_in_the_same_slot"
ALTERNATING = "test_one_text_alternating"
ONE_SETTING = "test_one_setting_everywhere"
RESTORE = "test_restore_into_a_slot_never_used"
LONG = "test_one_adapter_everywhere_at_30000_tokens"

STEPS: Mapping[str, tuple[str, ...]] = {
    ARTICLE: ("glass", "fox", "glass + tail"),
    SAME_ADAPTER: ("P", "Q", "P, next turn"),
    OTHER_SCALE: ("P", "Q", "P, other scale"),
    OTHER_ADAPTER: ("P", "Q", "P, other adapter"),
    NONE_NAMED: ("P", "P, none named"),
    SERVER_WIDE: ("P", "P, after the change"),
    SAME_SLOT: ("P under A", "P under B", "B, next turn"),
    ALTERNATING: ("A1", "B1", "A2", "B2", "A3", "B3"),
    ONE_SETTING: ("P", "Q", "P, next turn"),
    RESTORE: ("P1", "Q1", "P2", "Q2", "P3", "Q3", "P4", "Q4"),
}

EVERY_PROMISE_LOST: Signatures = {
    ARTICLE: lost("glass + tail"),
    SAME_ADAPTER: lost("P, next turn"),
    SAME_SLOT: lost("B, next turn"),
    ALTERNATING: lost("A2", "B2", "A3", "B3"),
    ONE_SETTING: lost("P, next turn"),
    RESTORE: lost("P2", "Q2", "P3", "Q3", "P4", "Q4"),
}

# Without the field every request is served under the server-wide scales, by one real server, and
# so with what that one holds for the other settings.
LORA_DROPPED: Signatures = {
    ARTICLE: wrong("glass + tail"),
    # Q is under no adapter either way, but it starts from the BOS of P, which was to be another's.
    SAME_ADAPTER: wrong("P", "P, next turn") | stale("Q"),
    # What comes back was computed under no adapter, as it should have been: only reuse tells.
    f"{OTHER_SCALE}-1to0": wrong("P") | stale("Q", "P, other scale"),
    f"{OTHER_SCALE}-half_to_1": wrong(*STEPS[OTHER_SCALE]) | stale("Q", "P, other scale"),
    OTHER_ADAPTER: wrong(*STEPS[OTHER_ADAPTER]) | stale("Q", "P, other adapter"),
    NONE_NAMED: wrong("P") | stale("P, none named"),
    SAME_SLOT: wrong(*STEPS[SAME_SLOT]) | stale("P under B"),
    ALTERNATING: wrong(*STEPS[ALTERNATING]) | stale("B1"),
    f"{ONE_SETTING}-one_everywhere": wrong(*STEPS[ONE_SETTING]),
    RESTORE: wrong(*STEPS[RESTORE]),
}

# The wrong scale has a real server of its own, so that reuse looks right: only answers tell.
SCALE_CHANGED: Signatures = {
    ARTICLE: wrong("glass + tail"),
    SAME_ADAPTER: wrong("P", "P, next turn"),
    f"{OTHER_SCALE}-1to0": wrong("P"),
    f"{OTHER_SCALE}-half_to_1": wrong(*STEPS[OTHER_SCALE]),
    OTHER_ADAPTER: wrong(*STEPS[OTHER_ADAPTER]),
    NONE_NAMED: wrong("P"),
    SAME_SLOT: wrong(*STEPS[SAME_SLOT]),
    ALTERNATING: wrong(*STEPS[ALTERNATING]),
    f"{ONE_SETTING}-one_everywhere": wrong(*STEPS[ONE_SETTING]),
    RESTORE: wrong(*STEPS[RESTORE]),
}

# All but the last token, claimed of every prompt, is right where a prompt is repeated.
MORE_CLAIMED: Signatures = {
    ARTICLE: stale("glass + tail"),
    SAME_ADAPTER: stale(*STEPS[SAME_ADAPTER]),
    OTHER_SCALE: stale(*STEPS[OTHER_SCALE]),
    OTHER_ADAPTER: stale(*STEPS[OTHER_ADAPTER]),
    NONE_NAMED: stale(*STEPS[NONE_NAMED]),
    SERVER_WIDE: stale(*STEPS[SERVER_WIDE]),
    SAME_SLOT: stale(*STEPS[SAME_SLOT]),
    ALTERNATING: stale("A1", "B1"),
    ONE_SETTING: stale(*STEPS[ONE_SETTING]),
    RESTORE: stale("P1", "Q1"),
}

# In one slot everything that may be reused is reused, promised or not, so that one more is always
# too much; the numbers of a step that is not judged are checked all the same.
MISCOUNTED: Signatures = {
    scenario: accounting(*steps) | stale(*(steps[2:] if scenario == ARTICLE else steps))
    for scenario, steps in STEPS.items()
}

# The first reply is true; each one after it answers the request before.
ANOTHER_ANSWERED: Signatures = {
    **{scenario: wrong(*steps[1:]) for scenario, steps in STEPS.items()},
    ARTICLE: wrong("glass + tail"),
    # The conversation goes on with an answer that is not in the slot: its tokens are read again.
    SAME_SLOT: wrong("P under B", "B, next turn") | lost("B, next turn"),
}

# No answer is ever the one given. The tokens that are reported are true, and so is what follows
# from them: the conversation goes on with another text, and reuses what it shares with the slot.
TEXT_REWRITTEN: Signatures = {
    **{scenario: wrong(*steps) for scenario, steps in STEPS.items()},
    ARTICLE: wrong("glass + tail"),
}

# Every setting has its own slot behind a front, so that a text without competition under its own
# setting never leaves the slot.
NO_PROMPT_CACHE: Signatures = {
    ONE_SETTING: lost("P, next turn"),
    RESTORE: lost("P2", "Q2", "P3", "Q3", "P4", "Q4"),
}

# What the last request left in the slot is there for the next, under whatever adapters.
STATE_CARRIED_OVER: Signatures = {
    # Overwritten by the fox. The one token reused, its BOS, was taken from the glass: right.
    ARTICLE: lost("glass + tail"),
    SAME_ADAPTER: stale("Q") | wrong("Q") | lost("P, next turn"),
    OTHER_SCALE: stale("Q", "P, other scale") | wrong("Q", "P, other scale"),
    OTHER_ADAPTER: stale("Q", "P, other adapter") | wrong("Q", "P, other adapter"),
    NONE_NAMED: stale("P, none named") | wrong("P, none named"),
    SERVER_WIDE: stale("P, after the change") | wrong("P, after the change"),
    # The next turn reuses what B has indeed answered from, all of it, and all of it A's.
    SAME_SLOT: stale("P under B") | wrong("P under B", "B, next turn"),
    # From A2 on reuse is as promised, and the state is always A's.
    ALTERNATING: stale("B1") | wrong("B1", "B2", "B3"),
}

# The real server by itself, as `known_bugs.toml` has it for one slot.
ADAPTERS_IGNORED: Signatures = {
    ARTICLE: lost("glass + tail"),
    SAME_ADAPTER: lost("P, next turn"),
    OTHER_SCALE: stale("P, other scale") | wrong("P, other scale"),
    OTHER_ADAPTER: stale("P, other adapter") | wrong("P, other adapter"),
    NONE_NAMED: stale("P, none named") | wrong("P, none named"),
    SERVER_WIDE: stale("P, after the change") | wrong("P, after the change"),
    ALTERNATING: lost("A2", "B2", "A3", "B3"),
}


# An idle server of four slots takes the last one; there it finds its own state again.
SLOT_IGNORED: Signatures = {SAME_SLOT: accounting(*STEPS[SAME_SLOT])}
# Nothing is promised in a slot of what a reply says is in another.
SLOTS_SWAPPED: Signatures = {SAME_SLOT: accounting(*STEPS[SAME_SLOT])}
# A chat reply does not say which slot it is from: only what was lost by it shows.
SLOTS_SWAPPED_IN_CHAT: Signatures = {SAME_SLOT: lost("B, next turn")}


def _third(kind: Kind) -> Signatures:
    """A scenario ends with its third request, if it has one."""
    return {s: failed(kind, steps[2]) for s, steps in STEPS.items() if len(steps) > 2}


NEXT_TURNS = (SAME_ADAPTER, SAME_SLOT, ALTERNATING)
"""Conversations that go on, without and with a pinned slot, and one text again and again."""

ENDINGS = (NONE_NAMED, SAME_ADAPTER, ALTERNATING)
"""A scenario that is over before a third request, one just then, and one that would go on."""

TABLE = (
    Row("drops_lora", ONE_SLOT, LORA_DROPPED),
    Row("claims_more", ONE_SLOT, MORE_CLAIMED),
    Row("answers_another", ONE_SLOT, ANOTHER_ANSWERED),
    Row("erases_between_turns", ONE_SLOT, EVERY_PROMISE_LOST),
    Row("carries_state_over", ONE_SLOT, STATE_CARRIED_OVER),
    Row(
        "ignores_adapters_in_cache",
        ONE_SLOT,
        ADAPTERS_IGNORED,
        known_bug=(f"test_lora.py::{NONE_NAMED}", f"{ONE_SLOT}-empty"),
    ),
    Row("changes_scale", ONE_SLOT, SCALE_CHANGED),
    Row("miscounts", ONE_SLOT, MISCOUNTED),
    Row("claims_less", ONE_SLOT, EVERY_PROMISE_LOST),
    Row("no_prompt_cache", ONE_SLOT, NO_PROMPT_CACHE),
    Row("rewrites_text", ONE_SLOT, TEXT_REWRITTEN),
    Row("kills_at_the_third", ONE_SLOT, _third(Kind.CRASH)),
    Row("refuses", ONE_SLOT, _third(Kind.REFUSED)),
    Row("hangs", ONE_SLOT, _third(Kind.HANG), ENDINGS[:2], ("--llama-timeout=4",)),
    Row("drops_lora", ONE_SLOT_CHAT, LORA_DROPPED, NEXT_TURNS),
    Row("claims_more", ONE_SLOT_CHAT, MORE_CLAIMED, NEXT_TURNS),
    Row("miscounts", ONE_SLOT_CHAT, MISCOUNTED, NEXT_TURNS),
    Row("answers_another", ONE_SLOT_CHAT, ANOTHER_ANSWERED, NEXT_TURNS),
    Row("rewrites_text", ONE_SLOT_CHAT, TEXT_REWRITTEN, NEXT_TURNS),
    Row("erases_between_turns", FOUR_UNIFIED, EVERY_PROMISE_LOST),
    Row("strips_id_slot", FOUR_SLOTS, SLOT_IGNORED),
    Row("swaps_slots", FOUR_SLOTS, SLOTS_SWAPPED),
    Row("swaps_slots", FOUR_SLOTS_CHAT, SLOTS_SWAPPED_IN_CHAT, (SAME_SLOT,)),
    Row("claims_less", "", {LONG: lost("long, next turn")}, (LONG,)),
    Row("drops_lora", "", {LONG: wrong("long", "Q", "long, next turn")}, (LONG,)),
)

FAMILY = Family(test_lora, TABLE)
