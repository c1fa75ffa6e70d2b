"""How one request went through a server, as its log tells it."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.reasons.chronicle import Held, Steps
from harness.server.config import DEFAULT_SIMILARITY
from harness.server.events import (
    Aborted,
    AdaptersChanged,
    CheckpointRestored,
    CheckpointTried,
    ChunkShifted,
    ContextShifted,
    CutFailed,
    EntryCompared,
    Event,
    FullReprocessing,
    How,
    LookupStarted,
    RestoreFailed,
    SlotCompared,
    SlotSelected,
    TaskStarted,
)

# What llama-server decides by; the same from b9093 to b11434.
KEEP_SLOT = 0.5
"""Of a slot that keeps as much nothing is saved, and no better state looked for."""
KEEP_ENTRY = 0.25
"""An entry of which less would be kept is not restored."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a server was told that it chooses by."""

    similarity: float = DEFAULT_SIMILARITY
    """`--slot-prompt-similarity`."""
    prompt_cache: bool = True
    """Whether there is one: `--cache-ram`."""


DEFAULTS = Rules()


@dataclass(slots=True)
class Course:
    """How a request went, as far as reuse is concerned."""

    slot: int | None = None
    """The slot it ran in; None where it never got one."""
    user: str | None = None
    """The step whose request that slot had before; None where it had none."""
    selected: SlotSelected | None = None
    slots_compared: dict[int, SlotCompared] = field(default_factory=dict)
    lookup: LookupStarted | None = None
    """None where the prompt cache was not gone to."""
    looked_through: tuple[Steps, ...] = ()
    """Whose states were in the prompt cache by then."""
    compared: list[EntryCompared] = field(default_factory=list)
    restored: Held | None = None
    """What the prompt cache gave."""
    restore_failed: RestoreFailed | None = None
    discarded: Held | None = None
    """What was cleared for a change of adapters."""
    adapters_changed: AdaptersChanged | None = None
    source: Held | None = None
    """What was in the slot when reading began."""
    kept: int | None = None
    """Tokens reused, as the log has it."""
    tried: int = 0
    """Checkpoints that were looked at."""
    checkpoint: CheckpointRestored | None = None
    reprocessed: bool = False
    """Whether all was read for want of a checkpoint."""
    cut_failed: bool = False
    """Whether all was read since what was kept could not be cut back."""
    shifted: int = 0
    """Tokens that `--cache-reuse` moved."""
    context_shifted: bool = False
    aborted: str = ""
    """Why the server ended itself, in its own words."""

    def shares(self, slot: int, held: int) -> int | None:
        """How many of a slot's `held` tokens the prompt has; None where the log does not tell."""
        compared, selected = self.slots_compared.get(slot), self.selected
        if compared is not None:
            return compared.shared
        if selected is None or selected.slot != slot or selected.f_keep is None:
            return None
        return round(selected.f_keep * held)

    def f_keep(self, slot: int, held: int) -> float | None:
        """The share of a slot's tokens that the server decided by; None where it did by none.

        Where a slot was asked for that is not similar enough to be chosen, it counts as 0.
        """
        selected, compared = self.selected, self.slots_compared.get(slot)
        if selected is None or selected.slot != slot or selected.how is How.LRU:
            return None
        if selected.f_keep is not None or compared is None or held <= 0:
            return selected.f_keep
        similar = compared.shared > compared.threshold * compared.prompt_tokens
        return compared.shared / held if similar else 0.0


def note(event: Event, course: Course) -> None:
    """What an event says of the request alone."""
    match event:
        case SlotSelected():
            course.selected = event
        case SlotCompared(slot=int(slot)):
            course.slots_compared[slot] = event
        case LookupStarted():
            course.lookup = event
        case EntryCompared():
            course.compared.append(event)
        case RestoreFailed():
            course.restore_failed = event
        case AdaptersChanged():
            course.adapters_changed = event
        case TaskStarted(slot=slot):
            course.slot = slot
        case CheckpointTried():
            course.tried += 1
        case CheckpointRestored():
            course.checkpoint = event
        case FullReprocessing():
            course.reprocessed = True
        case CutFailed():
            course.cut_failed = True
        case ChunkShifted(tokens=tokens):
            course.shifted += tokens
        case ContextShifted():
            course.context_shifted = True
        case Aborted(message=message):
            course.aborted = message
        case _:
            pass
