"""What llama-server decides about slots, the prompt cache and checkpoints, as typed events.

All that its log tells of reuse; whoever reads them picks what is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class How(StrEnum):
    """How a slot was chosen for a request."""

    BY_ID = "asked for"
    SIMILARITY = "most similar"
    LRU = "least recently used"


class Limit(StrEnum):
    """Why an entry of the prompt cache was given up."""

    ROOM = "room for another entry"
    SIZE = "size limit"
    TOKENS = "token limit"


@dataclass(frozen=True, slots=True)
class Event:
    """A line that was understood."""

    slot: int | None
    """The slot it speaks of, if any."""
    task: int | None
    """The task; None, too, where the line comes before the slot has one."""


@dataclass(frozen=True, slots=True)
class SlotCompared(Event):
    """A slot shares this much with the prompt. b10178 and later."""

    shared: int
    prompt_tokens: int
    threshold: float
    """`--slot-prompt-similarity`: a slot that shares no larger part of the prompt is not taken."""


@dataclass(frozen=True, slots=True)
class SlotSkipped(Event):
    """A slot was not considered: it is empty, or busy. b10178 and later."""

    why: str


@dataclass(frozen=True, slots=True)
class SlotSelected(Event):
    """A slot was chosen. Where one is asked for, b9725 and later say so."""

    how: How
    f_keep: float | None = None
    """The share of the slot's own tokens that the prompt has; for the most similar slot."""


@dataclass(frozen=True, slots=True)
class CacheUpdateStarted(Event):
    """The slot is about to be saved to the prompt cache, and a better state looked for."""


@dataclass(frozen=True, slots=True)
class CacheUpdateEnded(Event):
    """Both were done."""

    ms: float


@dataclass(frozen=True, slots=True)
class PromptSaving(Event):
    """A slot's state is to become an entry of the prompt cache."""

    tokens: int


@dataclass(frozen=True, slots=True)
class PromptNotSaved(Event):
    """It did not."""

    why: str


@dataclass(frozen=True, slots=True)
class AlreadyCached(Event):
    """It did not, since an entry has all of it."""


@dataclass(frozen=True, slots=True)
class EntryObsolete(Event):
    """An entry was removed, since the state being saved has all of it."""

    tokens: int


@dataclass(frozen=True, slots=True)
class EntryEvicted(Event):
    """The oldest entry was given up."""

    limit: Limit


@dataclass(frozen=True, slots=True)
class LookupStarted(Event):
    """A state better than the slot's own is looked for."""

    f_keep: float
    """The share of the slot's tokens that the prompt has; -1 for an empty slot."""
    f_sim: float
    """The share of the prompt's tokens that the slot has."""


@dataclass(frozen=True, slots=True)
class EntryCompared(Event):
    """An entry shares this much with the prompt. b10178 and later."""

    tokens: int
    shared: int
    f_keep: float
    f_sim: float


@dataclass(frozen=True, slots=True)
class EntryTaken(Event):
    """An entry was restored into the slot, and is no entry any more."""

    f_keep: float
    f_sim: float


@dataclass(frozen=True, slots=True)
class RestoreFailed(Event):
    """An entry could not be restored: there was no room in the KV pool."""

    bytes: int


@dataclass(frozen=True, slots=True)
class FileRefused(Event):
    """A slot file could not be restored."""


@dataclass(frozen=True, slots=True)
class CacheListed(Event):
    """What the prompt cache has; each entry follows as `EntryListed`, the oldest first."""

    prompts: int
    mib: float
    limit_mib: float
    limit_tokens: int


@dataclass(frozen=True, slots=True)
class EntryListed(Event):
    """An entry; `address` tells it from the others for as long as it is there."""

    address: str
    tokens: int
    checkpoints: int
    mib: float


@dataclass(frozen=True, slots=True)
class IdleSlotSaving(Event):
    """An idle slot is about to be saved, since another one has got a task."""


@dataclass(frozen=True, slots=True)
class SlotCleared(Event):
    """A slot's state was dropped."""

    tokens: int


@dataclass(frozen=True, slots=True)
class SlotPurged(Event):
    """An idle slot is about to be dropped, since the KV pool is full."""

    number: int
    tokens: int


@dataclass(frozen=True, slots=True)
class PoolFull(Event):
    """No room was found in the KV pool."""


@dataclass(frozen=True, slots=True)
class AdaptersChanged(Event):
    """A slot's state was dropped, since its last request had other adapters."""

    before: int
    """How many the slot knew of; 0 where it never had a request."""
    after: int


@dataclass(frozen=True, slots=True)
class TaskStarted(Event):
    """A slot has got a task."""


@dataclass(frozen=True, slots=True)
class PromptStarted(Event):
    """The prompt is about to be read."""

    tokens: int


@dataclass(frozen=True, slots=True)
class PromptKept(Event):
    """This many tokens are in the slot; the first time after `PromptStarted` it is `cache_n`."""

    tokens: int


@dataclass(frozen=True, slots=True)
class PromptRead(Event):
    """The prompt was read, all but what was kept of it."""

    ms: float
    tokens: int


@dataclass(frozen=True, slots=True)
class CutFailed(Event):
    """What is kept could not be cut back, so that nothing of it is kept. b9093 to b9113."""


@dataclass(frozen=True, slots=True)
class ContextShifted(Event):
    """The beginning of what is in the slot was dropped, for want of context."""


@dataclass(frozen=True, slots=True)
class ChunkShifted(Event):
    """`--cache-reuse` moved this many tokens to where the prompt has them."""

    tokens: int


@dataclass(frozen=True, slots=True)
class CheckpointTried(Event):
    """A context checkpoint is looked at."""

    pos_min: int
    pos_max: int
    needed: int


@dataclass(frozen=True, slots=True)
class CheckpointRestored(Event):
    """The prompt goes on at a context checkpoint."""

    tokens: int
    """How many it was made after."""
    n_past: int
    """How many of them are used."""


@dataclass(frozen=True, slots=True)
class FullReprocessing(Event):
    """No context checkpoint can be used: the prompt is read from its beginning."""


@dataclass(frozen=True, slots=True)
class CheckpointCreated(Event):
    """A context checkpoint was made after this many tokens."""

    tokens: int


@dataclass(frozen=True, slots=True)
class CheckpointDropped(Event):
    """A context checkpoint was given up; -1 where the line does not say which."""

    tokens: int = -1


@dataclass(frozen=True, slots=True)
class TaskEnded(Event):
    """A task is done, and has left this many tokens in the slot."""

    tokens: int


@dataclass(frozen=True, slots=True)
class Sleeping(Event):
    """The server gives up its model and all that is in slots and in the prompt cache."""


@dataclass(frozen=True, slots=True)
class Aborted(Event):
    """The server ended itself."""

    message: str


@dataclass(frozen=True, slots=True)
class Unrecognised(Event):
    """A line that speaks of slots or of the prompt cache, in words nobody here knows."""

    start: str
    """How it begins, in letters: what follows may quote a prompt."""
