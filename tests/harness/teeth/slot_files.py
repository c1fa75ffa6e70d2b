"""What faults do to the scenarios of `test_slot_files.py`."""

from __future__ import annotations

from harness.expect import Kind
from tests.cache import test_slot_files
from tests.harness.teeth.table import (
    FOUR_SLOTS,
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

RESTART = "test_restart"
REPEAT = "test_same_prompt_after_restart"
TWO = "test_two_conversations"
OTHERS = "test_other_slots_stay"
IDLE = "test_idle_slot"
EMPTY = "test_empty_slot"
SAME_ADAPTER = "test_same_adapter_after_restart"
OTHER_ADAPTER = "test_other_adapter_than_saved"
DAMAGED = "test_damaged_file"
MODEL = "test_file_of_another_model"
CACHE_TYPE = "test_file_of_another_cache_type"
CONTEXT = "test_file_of_a_larger_context"
TOKEN = "test_changed_token"
KV = "test_changed_kv"
LONG = "test_restart_at_30000_tokens"

REFUSED = (DAMAGED, MODEL, CACHE_TYPE, CONTEXT)
"""Those with a file that cannot be restored."""
CHANGED = (TOKEN, KV)
"""Those with a file that may be refused."""

NEXT_TURN = lost("P, next turn")

LESS_CLAIMED: Signatures = {
    **dict.fromkeys((RESTART, EMPTY, SAME_ADAPTER, IDLE, *REFUSED), NEXT_TURN),
    REPEAT: lost("P again"),
    TWO: lost("P, next turn", "Q, next turn"),
    OTHERS: lost("P, next turn", *(f"R in {slot}, next turn" for slot in (1, 2, 3))),
}

MORE_CLAIMED: Signatures = {
    **dict.fromkeys((RESTART, EMPTY, SAME_ADAPTER), stale("P", "P, next turn")),
    **dict.fromkeys(REFUSED, stale("P", "P, next turn", "P at first")),
    REPEAT: stale("P"),
    TWO: stale("P", "Q", "P, next turn", "Q, next turn"),
    # R's next turn is then in the first slot, and might be in the others.
    OTHERS: stale("R", "P", "Q", "P, next turn", "R in 1, next turn"),
    IDLE: stale("P", "Q", "P, next turn"),
    OTHER_ADAPTER: stale("P", "P, no adapter"),
    f"{OTHER_ADAPTER}-live-explicit": stale("P", "Q", "P, no adapter"),
    f"{OTHER_ADAPTER}-live-left_out": stale("P", "Q", "P, no adapter"),
    DAMAGED: stale("R", "P", "P, next turn", "P at first"),
    f"{TOKEN}-original": stale("P", "original"),
    f"{TOKEN}-changed": stale("P", "changed"),
    KV: stale("P", "Q"),
}

NOTHING_RESTORED: Signatures = {
    RESTART: NEXT_TURN,
    REPEAT: lost("P again"),
    TWO: lost("P, next turn", "Q, next turn"),
    SAME_ADAPTER: NEXT_TURN,
}

# A request that names no slot finds its state next door.
RESTORED_NEXT_DOOR: Signatures = {
    f"{RESTART}-id_slot": NEXT_TURN,
    REPEAT: lost("P again"),
    TWO: lost("P, next turn", "Q, next turn"),
    # R comes to where P and R were.
    OTHERS: lost("P, next turn", "R in 1, next turn", "R in 3, next turn"),
    IDLE: NEXT_TURN,
    SAME_ADAPTER: NEXT_TURN,
}

# What was restored last is all there is.
OTHERS_EMPTIED: Signatures = {
    OTHERS: lost("P, next turn", "R in 2, next turn", "R in 3, next turn")
}

TAKEN_AS_SERVER_WIDE: Signatures = {
    f"{SAME_ADAPTER}-explicit": NEXT_TURN,
    OTHER_ADAPTER: stale("P, no adapter") | wrong("P, no adapter"),
}

UNCHECKED: Signatures = {f"{TOKEN}-changed": stale("changed") | wrong("changed")}

EMPTIED_BEFORE: Signatures = dict.fromkeys(REFUSED, NEXT_TURN)

DIED: Signatures = {
    **dict.fromkeys((*REFUSED, *CHANGED), failed(Kind.CRASH, "restore")),
    EMPTY: failed(Kind.CRASH, "save nothing"),
}

ACCEPTED: Signatures = dict.fromkeys(REFUSED, failed(Kind.ACCEPTED, "restore", "restore at first"))

POISONED: Signatures = dict.fromkeys(REFUSED, wrong("P, next turn"))

# A restore that tells the truth then contradicts the save. What was changed has no numbers.
SAVES_MISREPORTED: Signatures = {
    **dict.fromkeys((RESTART, REPEAT, SAME_ADAPTER, OTHER_ADAPTER), accounting("save", "restore")),
    **dict.fromkeys(CHANGED, accounting("save")),
    TWO: accounting("save P", "save Q", "restore P", "restore Q"),
    DAMAGED: accounting("save R"),
}

# The first reply of each process is true.
ANOTHER_ANSWERED: Signatures = {KV: wrong("Q")}

# A file that was changed has no numbers to keep to.
MISREPORTED: Signatures = {
    **dict.fromkeys((RESTART, REPEAT, SAME_ADAPTER, OTHER_ADAPTER), accounting("restore")),
    TWO: accounting("restore P", "restore Q"),
}

LONG_LOST: Signatures = {LONG: lost("long, next turn")}

TABLE = (
    Row("claims_less", ONE_SLOT, LESS_CLAIMED),
    Row("claims_more", ONE_SLOT, MORE_CLAIMED),
    Row("restores_nothing", ONE_SLOT, NOTHING_RESTORED),
    Row("files_without_adapters", ONE_SLOT, TAKEN_AS_SERVER_WIDE),
    Row("files_without_checksum", ONE_SLOT, UNCHECKED, CHANGED),
    Row("empties_when_refusing", ONE_SLOT, EMPTIED_BEFORE),
    Row("dies_when_refusing", ONE_SLOT, DIED),
    Row("accepts_any_file", ONE_SLOT, ACCEPTED),
    Row("poisons_when_refusing", ONE_SLOT, POISONED),
    Row("misreports_files", ONE_SLOT, MISREPORTED),
    Row("misreports_saves", ONE_SLOT, SAVES_MISREPORTED),
    Row("answers_another", ONE_SLOT, ANOTHER_ANSWERED, (KV,)),
    Row("restores_nothing", ONE_SLOT_CHAT, NOTHING_RESTORED),
    Row("claims_less", FOUR_SLOTS, LESS_CLAIMED, (OTHERS, IDLE)),
    Row("claims_more", FOUR_SLOTS, MORE_CLAIMED, (OTHERS, IDLE)),
    Row("restores_next_door", FOUR_SLOTS, RESTORED_NEXT_DOOR),
    Row("empties_other_slots", FOUR_SLOTS, OTHERS_EMPTIED),
    Row(
        "saves_what_is_there",
        FOUR_UNIFIED,
        {IDLE: NEXT_TURN},
        known_bug=(f"test_slot_files.py::{IDLE}", FOUR_UNIFIED),
    ),
    Row("restores_nothing", "", LONG_LOST, (LONG,)),
    Row("claims_more", "", {LONG: stale("long", "long, next turn")}, (LONG,)),
)

FAMILY = Family(test_slot_files, TABLE)
