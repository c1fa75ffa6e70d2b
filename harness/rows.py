"""Rows of steps, with what came back."""

from __future__ import annotations

from dataclasses import replace

from harness.errors import Refused
from harness.judge import Judgement
from harness.ledger import RequestRow, SlotFileRow
from harness.replies import CompletionReply, Reply, SlotFile


def with_refusal(row: RequestRow, refusal: Refused) -> RequestRow:
    """Of a call that was answered with an HTTP error."""
    return replace(row, note=f"refused with HTTP {refusal.status}")


def with_file(row: RequestRow, reply: SlotFile) -> RequestRow:
    """Of a slot file that was saved or restored."""
    return replace(row, file=SlotFileRow(tokens=reply.n_tokens, bytes=reply.n_bytes, ms=reply.ms))


def with_reply(row: RequestRow, reply: Reply, judgement: Judgement | None) -> RequestRow:
    """Of a request that was answered, and how the answer was judged."""
    return replace(
        row,
        slot=reply.id_slot if isinstance(reply, CompletionReply) else None,
        cache_n=reply.timings.cache_n,
        prompt_n=reply.timings.prompt_n,
        predicted_n=reply.timings.predicted_n,
        prompt_ms=reply.timings.prompt_ms,
        answer=judgement.by if judgement else None,
        cold=judgement.cold if judgement else None,
    )
