"""What faults do to the scenarios of `test_cache_types.py`."""

from __future__ import annotations

from tests.cache import test_cache_types
from tests.harness.teeth.table import ONE_SLOT, Family, Row, Signatures, lost, stale, wrong

PROMPT_CACHE = "test_through_the_prompt_cache"
SLOT_FILE = "test_through_a_slot_file"
MOVED = "test_moved_text"

LESS_CLAIMED: Signatures = {
    PROMPT_CACHE: lost("P, next turn", "P, another end"),
    SLOT_FILE: lost("P, next turn"),
    MOVED: lost("whole again", "whole, next turn"),
}

# What is asked for again is all reused anyway, and the step after the cut is not judged.
MORE_CLAIMED: Signatures = {
    PROMPT_CACHE: stale("P", "Q", "P, next turn", "P, another end"),
    SLOT_FILE: stale("P", "P, next turn"),
    MOVED: stale("whole", "whole, next turn"),
}

TEXT_REWRITTEN: Signatures = {
    PROMPT_CACHE: wrong("P", "Q", "P, next turn", "P, another end"),
    SLOT_FILE: wrong("P", "P, next turn"),
    MOVED: wrong("whole", "whole again", "whole, next turn"),
}

TABLE = (
    Row("claims_less", ONE_SLOT, LESS_CLAIMED),
    Row("claims_more", ONE_SLOT, MORE_CLAIMED),
    Row("rewrites_text", ONE_SLOT, TEXT_REWRITTEN),
)

FAMILY = Family(test_cache_types, TABLE)
