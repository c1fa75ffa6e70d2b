"""What faults do to the scenarios of `test_probes.py`."""

from __future__ import annotations

from collections.abc import Mapping

from tests.cache import test_probes
from tests.harness.teeth.table import (
    FOUR_UNIFIED,
    ONE_SLOT,
    ONE_SLOT_CHAT,
    Family,
    Row,
    Signatures,
    lost,
    stale,
    wrong,
)

HEALTH = "test_health_check"
IN_A_ROW = "test_health_checks_in_a_row"
EVERY_TURN = "test_health_check_at_every_turn"
NOT_CACHED = "test_health_check_that_is_not_to_be_cached"
CONTROL = "test_health_check_without_a_prompt_cache"
TITLE = "test_title_request"
EARLY = "test_title_request_early"
SUMMARY = "test_summary_request"
POLLING = "test_polling"
EMBEDDING = "test_embedding_request"
ADAPTER = "test_health_check_under_another_adapter"

TURNS = tuple(f"turn {number}" for number in range(1, 11))
PROMISES: Mapping[str, tuple[str, ...]] = {
    HEALTH: ("turn 2",),
    IN_A_ROW: ("turn 2",),
    EVERY_TURN: TURNS[1:],
    NOT_CACHED: ("turn 2",),
    CONTROL: ("turn 2",),
    TITLE: ("turn 2",),
    EARLY: ("turn 2",),
    SUMMARY: ("probe", "turn 2"),
    POLLING: ("turn 2",),
    EMBEDDING: ("turn 2",),
    ADAPTER: ("turn 2",),
}
"""The steps of which something is promised; in the control, no more than the head."""

EVERY_PROMISE_LOST: Signatures = {name: lost(*steps) for name, steps in PROMISES.items()}

# All but the last token is right where a probe is repeated, as those are that come later.
MORE_CLAIMED: Signatures = {
    **{name: stale("turn 1", "probe", "turn 2") for name in PROMISES},
    IN_A_ROW: stale("turn 1", "probe 1", "probe 2", "probe 3", "turn 2"),
    EVERY_TURN: stale(*TURNS, "probe 1", "probe 2", "probe 3"),
    # A fault leaves alone what is not to be cached.
    NOT_CACHED: stale("turn 1", "turn 2"),
    POLLING: stale("turn 1", "turn 2"),
    EMBEDDING: stale("turn 1", "turn 2"),
}

# With one slot, what the probe leaves there is all there is. The control has no prompt cache
# anyway; a summary goes on from the conversation, and the next turn from the summary; embeddings
# come from elsewhere; nobody but the conversation asks under its own adapter.
NO_PROMPT_CACHE: Signatures = {
    name: signature
    for name, signature in EVERY_PROMISE_LOST.items()
    if name not in (CONTROL, SUMMARY, POLLING, EMBEDDING, ADAPTER)
}

ONLY_THE_SLOT: Signatures = {TITLE: lost("turn 2"), EARLY: lost("turn 2")}

LORA_DROPPED: Signatures = {
    # The probe goes on from the conversation's head, which was to be under no adapter.
    f"{ADAPTER}-probe": stale("probe") | wrong("probe"),
    # The conversation is served under none, like the probe, and finds itself again.
    f"{ADAPTER}-conversation": wrong("turn 1", "turn 2") | stale("probe"),
}

SHORT = (HEALTH, TITLE, POLLING)

TABLE = (
    Row("claims_less", ONE_SLOT, EVERY_PROMISE_LOST),
    Row("claims_more", ONE_SLOT, MORE_CLAIMED),
    Row("erases_between_turns", ONE_SLOT, EVERY_PROMISE_LOST),
    Row("no_prompt_cache", ONE_SLOT, NO_PROMPT_CACHE),
    Row(
        "looks_in_the_slot_only",
        ONE_SLOT,
        ONLY_THE_SLOT,
        known_bug=(f"test_probes.py::{TITLE}", f"{ONE_SLOT}-idle"),
    ),
    Row(
        "embeds_in_the_slot",
        ONE_SLOT,
        {EMBEDDING: lost("turn 2")},
        known_bug=(f"test_probes.py::{EMBEDDING}", ONE_SLOT),
    ),
    Row("erases_when_looked_at", ONE_SLOT, {POLLING: lost("turn 2")}),
    Row("drops_lora", ONE_SLOT, LORA_DROPPED),
    Row("claims_less", ONE_SLOT_CHAT, EVERY_PROMISE_LOST, SHORT),
    Row("claims_more", ONE_SLOT_CHAT, MORE_CLAIMED, SHORT),
    # A health check is taken for a continuation, whatever slots are free.
    Row("no_prompt_cache", FOUR_UNIFIED, NO_PROMPT_CACHE, (HEALTH, IN_A_ROW, NOT_CACHED)),
)

FAMILY = Family(test_probes, TABLE)
