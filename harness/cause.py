"""The reasons why a step's reuse is what it is: a closed set."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """A reason."""

    # Why less was reused than some state has.
    NOTHING_SIMILAR = "no similar slot or entry"
    SLOT_KEEPS_ENOUGH = "not looked up: the slot keeps enough"
    PINNED = "not looked up: the slot was asked for"
    OTHER_SLOT = "another slot was asked for"
    SIMILARITY_OFF = "not looked up: similarity is off"
    BELOW_THRESHOLD = "looked up, but below a threshold"
    DISCARDED = "discarded for a change of adapters"
    NO_CHECKPOINT = "no checkpoint near enough"
    CONSUMED = "consumed by another request"
    EVICTED = "evicted from the prompt cache"
    SLOT_TAKEN = "slot taken by another request, unsaved"
    CLEARED = "idle slot cleared, unsaved"
    NEVER_WRITTEN = "never written"
    FILE_REFUSED = "slot emptied by a refused slot file"
    POOL_FULL = "KV pool exhausted"
    CONTEXT_SHIFTED = "context shifted"
    SLEPT = "the server slept"
    NOT_ASKED = "cache_prompt is false"
    # Where that came from which should not have been reused, or is wrong.
    FROM_SLOT = "kept from its slot"
    FROM_CACHE = "restored from the prompt cache"
    FROM_FILE = "restored from a slot file"
    AT_CHECKPOINT = "resumed at a context checkpoint"
    SHIFTED = "moved by --cache-reuse"
    NOT_REUSED = "nothing was reused"
    # What has nothing to do with reuse.
    ENDED = "the server ended"
    NO_ANSWER = "no answer"
    REFUSED = "refused"
    ACCEPTED = "accepted"
    NUMBERS = "the server's numbers"
    NOT_READ = "the log is not read"
    UNKNOWN = "unknown"

    @property
    def of_origin(self) -> bool:
        """Whether it says where something came from that was reused."""
        return self in _ORIGINS

    @property
    def of_loss(self) -> bool:
        """Whether it says why tokens were read again."""
        return self not in (*_ORIGINS, *_OTHERS, Cause.NOT_ASKED)


_ORIGINS = (
    *(Cause.FROM_SLOT, Cause.FROM_CACHE, Cause.FROM_FILE),
    *(Cause.AT_CHECKPOINT, Cause.SHIFTED, Cause.NOT_REUSED),
)
_OTHERS = (Cause.ENDED, Cause.NO_ANSWER, Cause.REFUSED, Cause.ACCEPTED, Cause.NUMBERS)
