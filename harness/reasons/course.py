"""How one request went through a server, as its log tells it."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.reasons.chronicle import Held, Steps
from harness.server.events import (
    Aborted,
    AdaptersChanged,
    CheckpointRestored,
    CheckpointTried,
    ChunkShifted,
    ContextShifted,
    CutFailed,
    EntryCompared,
    EntryTaken,
    Event,
    FullReprocessing,
    LookupStarted,
    RestoreFailed,
    SlotCompared,
    SlotSelected,
    TaskStarted,
)

# What llama-server decides by; the same from b9093 to b11434.
SIMILARITY = 0.1
"""Its default of `--slot-prompt-similarity`."""
KEEP_SLOT = 0.5
"""Of a slot that keeps as much nothing is saved, and no better state looked for."""
KEEP_ENTRY = 0.25
"""An entry of which less would be kept is not restored."""


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
    taken: EntryTaken | None = None
    restored: Held | None = None
    """What the prompt cache gave."""
    restore_failed: bool = False
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
    """Whether all was read since what was kept could not be cut back."""
    shifted: int = 0
    """Tokens that `--cache-reuse` moved."""
    context_shifted: bool = False
    aborted: str = ""
    """Why the server ended itself, in its own words."""

    def f_keep(self, slot: int, held: int) -> float | None:
        """The share of a slot's `held` tokens that the prompt has; None where that is not told."""
        selected = self.selected
        if selected is not None and selected.slot == slot and selected.f_keep is not None:
            return selected.f_keep
        compared = self.slots_compared.get(slot)
        return compared.shared / held if compared and held > 0 else None


def read(event: Event, course: Course) -> None:
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
        case EntryTaken():
            course.taken = event
        case RestoreFailed():
            course.restore_failed = True
        case AdaptersChanged():
            course.adapters_changed = event
        case TaskStarted(slot=slot):
            course.slot = slot
        case CheckpointTried():
            course.tried += 1
        case CheckpointRestored():
            course.checkpoint = event
        case FullReprocessing() | CutFailed():
            course.reprocessed = True
        case ChunkShifted(tokens=tokens):
            course.shifted += tokens
        case ContextShifted():
            course.context_shifted = True
        case Aborted(message=message):
            course.aborted = message
        case _:
            pass
