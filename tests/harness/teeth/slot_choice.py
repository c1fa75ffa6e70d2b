"""What faults do to the scenarios of `test_slot_choice.py`."""

from __future__ import annotations

from tests.cache import test_slot_choice
from tests.harness.teeth.table import (
    FOUR_SLOTS,
    ONE_SLOT,
    ONE_SLOT_CHAT,
    Family,
    Row,
    Signatures,
    lost,
    stale,
    wrong,
)

PINNED = "test_pinned_slot_looks_in_the_prompt_cache"

FIRST_LOST: Signatures = {PINNED: lost("P again")}

# All but the last token is right where a text is repeated.
MORE_CLAIMED: Signatures = {PINNED: stale("P", "Q")}

TABLE = (
    Row("claims_less", ONE_SLOT, FIRST_LOST),
    Row("claims_less", ONE_SLOT_CHAT, FIRST_LOST),
    Row("claims_more", ONE_SLOT, MORE_CLAIMED),
    Row("rewrites_text", ONE_SLOT, {PINNED: wrong("P", "Q", "P again")}),
    Row("no_prompt_cache", ONE_SLOT, FIRST_LOST),
    Row("no_prompt_cache", FOUR_SLOTS, FIRST_LOST),
    Row("pins_past_the_cache", ONE_SLOT, FIRST_LOST),
    Row("pins_past_the_cache", FOUR_SLOTS, FIRST_LOST),
)

FAMILY = Family(test_slot_choice, TABLE)
