"""What faults do to the scenarios of `test_accounting.py`."""

from __future__ import annotations

from tests.cache import test_accounting
from tests.harness.teeth.table import (
    FOUR_SLOTS,
    ONE_SLOT,
    ONE_SLOT_CHAT,
    Family,
    Row,
    Signatures,
    accounting,
    lost,
    stale,
    wrong,
)

IDENTICAL = "test_identical_request"
NOT_CACHED = "test_not_to_be_cached"
CHANGED = "test_changed_token"
STREAMS = "test_streams"
METRICS = "test_metrics"

V1 = "np1-kvu-v1_completions"

# In one slot Q starts from the BOS of P. Where a reply says otherwise, the counters still know.
LESS_CLAIMED: Signatures = {
    IDENTICAL: lost("P again"),
    NOT_CACHED: lost("P again"),
    CHANGED: lost("changed"),
    STREAMS: lost("P, next turn", "the same at once"),
    METRICS: lost("P, next turn", "Q again")
    | accounting("metrics after two", "metrics at the end"),
}

# All but the last token is right of what is repeated; what is not to be cached is left alone.
MORE_CLAIMED: Signatures = {
    IDENTICAL: stale("P"),
    NOT_CACHED: stale("P"),
    CHANGED: stale("P", "changed"),
    STREAMS: stale("P", "P, next turn"),
    METRICS: stale("P", "Q", "P, next turn")
    | accounting("metrics after two", "metrics at the end"),
}

USAGE_WRONG: Signatures = {
    IDENTICAL: accounting("P", "P again"),
    NOT_CACHED: accounting("P", "P again"),
    CHANGED: accounting("P", "changed"),
    STREAMS: accounting("P", "P, next turn", "the same at once"),
    METRICS: accounting("P", "Q", "P, next turn", "Q again"),
}

# Nothing is promised of the one token that Q could have reused; the counters have it.
STREAMS_CLAIM_LESS: Signatures = {
    STREAMS: lost("P, next turn"),
    METRICS: accounting("metrics after two", "metrics at the end"),
}

UNCACHED_REUSED: Signatures = {
    NOT_CACHED: stale("P, not cached"),
    STREAMS: stale("not cached"),
    METRICS: stale("Q, not cached"),
}

METRICS_WRONG: Signatures = {
    METRICS: accounting("metrics at first", "metrics after two", "metrics at the end")
}

TEXT_REWRITTEN: Signatures = {STREAMS: wrong("P", "P, next turn", "the same at once")}

TABLE = (
    Row("claims_less", ONE_SLOT, LESS_CLAIMED),
    Row("claims_more", ONE_SLOT, MORE_CLAIMED),
    Row("reuses_uncached", ONE_SLOT, UNCACHED_REUSED),
    Row("streams_claim_less", ONE_SLOT, STREAMS_CLAIM_LESS),
    Row("metrics_disagree", ONE_SLOT, METRICS_WRONG),
    Row("rewrites_text", ONE_SLOT, TEXT_REWRITTEN, (STREAMS,)),
    Row("usage_disagrees", ONE_SLOT_CHAT, USAGE_WRONG),
    Row("usage_disagrees", V1, USAGE_WRONG),
    Row("streams_claim_less", V1, STREAMS_CLAIM_LESS),
    Row("reuses_uncached", FOUR_SLOTS, UNCACHED_REUSED),
)

FAMILY = Family(test_accounting, TABLE)
