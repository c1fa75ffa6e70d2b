"""Why a request did not find the state it should have found, or not all of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.cause import Cause
from harness.chronicle import Chronicle, End, Entry, Held, Loss, Via
from harness.course import Course
from harness.ledger import Reason, RequestRow
from harness.server.events import How

SIMILARITY = 0.1
"""llama-server's default of `--slot-prompt-similarity`."""
_KEEP_ENTRY = 0.25
"""An entry of which less would be kept is not restored."""
_KEEP_SLOT = 0.5
"""Of a slot that keeps as much nothing is saved, and no better state looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where everything was when a request came, and where the state it should have found."""

    step: str
    """The one that left it."""
    slots: list[int]
    """Those that had it."""
    entry: Entry | None
    """The entry of the prompt cache that had it."""
    loss: Loss | None
    """What became of it, where it was nowhere."""
    held: dict[int, Held]
    """What was in each slot."""
    suspects: dict[int, str]
    """Slots that a refused slot file may have emptied."""

    @classmethod
    def of(cls, step: str, known: Chronicle) -> Whereabouts:
        """As the chronicle has it now."""
        entry = known.in_cache(step)
        return cls(
            step=step,
            slots=known.in_slots(step),
            entry=entry and replace(entry),
            loss=known.losses.get(step),
            held=dict(known.slots),
            suspects=dict(known.suspects),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A request that reused less than some state has, and all that tells why."""

    row: RequestRow
    course: Course
    at: Whereabouts
    similarity: float
    """The server's `--slot-prompt-similarity`."""
    slot: int
    """The slot it ran in."""
    loss: Loss | None
    """What became of the state by the end of the request, where it is nowhere."""

    def reason(self) -> Reason:
        """Why."""
        course, at = self.course, self.at
        if self.slot in at.slots:
            return self._short_in_slot()
        if course.restored is not None and at.step in course.restored.steps:
            return self._short_of("came from the prompt cache")
        if self.row.possible <= max(self.similarity, SIMILARITY) * self.row.prompt_tokens:
            return Reason(
                cause=Cause.NOTHING_SIMILAR,
                text=f"{state(at.step)} has most of the prompt, {self.row.possible} of "
                f"{self.row.prompt_tokens} tokens",
            )
        if at.entry is not None:
            return self._not_restored(at.entry)
        if at.slots:
            return self._elsewhere()
        if at.loss is not None:
            return lost(at.step, at.loss)
        return self._reason(Cause.UNKNOWN, "is where the log does not tell")

    def _reason(self, cause: Cause, what: str) -> Reason:
        return Reason(cause=cause, text=f"{state(self.at.step)} {what}")

    def _short_in_slot(self) -> Reason:
        """The state was in the very slot that was used."""
        slot, at, course = self.slot, self.at, self.course
        held, other = at.held[slot], course.restored
        if held.via is Via.FILE and held.tokens < self._wanted():
            return Reason(
                cause=Cause.NEVER_WRITTEN,
                text=f"the slot file with {state(at.step)} has {held.tokens} tokens, "
                "as the slot had when it was saved",
            )
        if slot in at.suspects and not self.row.cache_n and not course.discarded:
            refused = f"was in slot {slot} until {at.suspects[slot]!r} was refused"
            return self._reason(Cause.FILE_REFUSED, refused)
        if other is not None:
            return self._reason(
                Cause.BELOW_THRESHOLD,
                f"was in slot {slot}, and that of {other.step!r}, {other.tokens} tokens, was "
                "restored over it",
            )
        return self._short_of(f"was in slot {slot}")

    def _wanted(self) -> int:
        """How many tokens the request should have found."""
        lower = self.row.expected[0] if self.row.expected else 0
        return lower if lower > (self.row.cache_n or 0) else self.row.possible

    def _short_of(self, where: str) -> Reason:
        """The state was in the slot by the time the request was launched."""
        course = self.course
        if course.discarded is not None:
            changed = course.adapters_changed
            never = changed is not None and not changed.before
            why = "the slot had no adapters yet" if never else "its last request had other adapters"
            return self._reason(Cause.DISCARDED, f"{where}, and was cleared: {why}")
        if course.reprocessed:
            none = f"{where}, and none of its checkpoints could be used"
            return self._reason(Cause.NO_CHECKPOINT, none)
        if course.checkpoint is not None:
            last = course.checkpoint.n_past
            return self._reason(
                Cause.NO_CHECKPOINT,
                f"{where}, and the last checkpoint to resume at was after {last} tokens",
            )
        used = f"{where}, and {self.row.cache_n} tokens of it were used"
        return self._reason(Cause.UNKNOWN, used)

    def _not_restored(self, entry: Entry) -> Reason:
        """The state was in the prompt cache, and stayed there."""
        course, other = self.course, self.course.restored
        if self.loss is not None and self.loss.end is End.EVICTED:
            return lost(self.at.step, self.loss)
        if course.restore_failed:
            return self._cached(Cause.POOL_FULL, "there was no room to restore it")
        if other is not None:
            taken = f"that of {other.step!r}, {other.tokens} tokens, was taken"
            return self._cached(Cause.BELOW_THRESHOLD, taken)
        if course.lookup is not None:
            return self._cached(Cause.BELOW_THRESHOLD, self._below(entry))
        return self._not_looked_up()

    def _cached(self, cause: Cause, what: str) -> Reason:
        return self._reason(cause, f"was in the prompt cache; {what}")

    def _below(self, entry: Entry) -> str:
        """Which threshold an entry did not pass."""
        compared = (c.shared for c in self.course.compared if c.tokens == entry.tokens)
        shared = max(compared, default=self.row.possible)
        f_keep, f_sim = shared / entry.tokens, shared / self.row.prompt_tokens
        if f_keep < _KEEP_ENTRY:
            return f"{shared} of its {entry.tokens} tokens, f_keep {f_keep:.3f} < {_KEEP_ENTRY}"
        base = self.course.lookup
        assert base is not None
        return (
            f"f_keep {f_keep:.3f} and f_sim {f_sim:.3f} are not both better than the slot's "
            f"{base.f_keep:.3f} and {base.f_sim:.3f}"
        )

    def _not_looked_up(self) -> Reason:
        """What kept the request from the prompt cache."""
        selected, here = self.course.selected, self.at.held.get(self.slot)
        if selected is not None and selected.how is How.SIMILARITY:
            return self._kept(here, selected.f_keep)
        if self.row.slot_asked is None:
            return self._cached(Cause.UNKNOWN, "it was not looked for")
        if selected is None:
            return self._cached(Cause.PINNED, "this build does not look there for a pinned slot")
        if not self.similarity:
            compared = f"slot {self.slot} was asked for, and nothing compared"
            return self._cached(Cause.SIMILARITY_OFF, compared)
        if here is None:
            return self._cached(Cause.PINNED, f"slot {self.slot} was asked for, and empty")
        return self._kept(here, None)

    def _kept(self, here: Held | None, f_keep: float | None) -> Reason:
        share = "" if f_keep is None else f"{f_keep:.3f} "
        what = f"that of {here.step!r}, {here.tokens} tokens" if here else "another"
        enough = f"slot {self.slot} had {what}, and f_keep {share}>= {_KEEP_SLOT} is enough"
        return self._cached(Cause.SLOT_KEEPS_ENOUGH, enough)

    def _elsewhere(self) -> Reason:
        """The state was in another slot."""
        slot, other = self.slot, self.course.discarded
        where = f"was in slot {self.at.slots[0]}"
        if self.row.slot_asked is not None:
            return self._reason(Cause.PINNED, f"{where}, and slot {slot} was asked for")
        if other is not None:
            cleared = f"slot {slot} was chosen, and the state of {other.step!r} there was cleared"
            return self._reason(Cause.DISCARDED, f"{where}; {cleared} for its adapters")
        if not self.similarity:
            return self._reason(Cause.SIMILARITY_OFF, f"{where}, and slot {slot} came next")
        return self._reason(Cause.UNKNOWN, f"{where}, and slot {slot} was used")


def state(step: str) -> str:
    """What a step left, in words."""
    return f"the state of {step!r}"


def lost(step: str, loss: Loss) -> Reason:
    """What became of a state that is nowhere any more."""
    where = "" if loss.slot is None else f" in slot {loss.slot}"
    by = repr(loss.by)
    cause, what = {
        End.EVICTED: (Cause.EVICTED, f" was the oldest when {by} came: {loss.why or 'a limit'}"),
        End.CUT: (Cause.CONSUMED, f" was restored for {by}, which kept {loss.kept}"),
        End.DISCARDED: (Cause.CONSUMED, f" was restored for {by}, and cleared for its adapters"),
        End.ADAPTERS: (Cause.SLOT_TAKEN, f" was cleared for the adapters of {by}"),
        End.OVERWRITTEN: (Cause.SLOT_TAKEN, f" was given to {by}, which kept {loss.kept}"),
        End.REPLACED: (Cause.SLOT_TAKEN, f" was replaced by the slot file of {by}"),
        End.FILE_REFUSED: (Cause.FILE_REFUSED, f" was cleared when {by} was refused"),
        End.NOT_TAKEN: (Cause.NEVER_WRITTEN, f" was not saved when {by} came: {loss.why}"),
        End.NO_COMPLETION: (Cause.NEVER_WRITTEN, f" was given to {by}, which is no completion"),
        End.IDLE: (Cause.IDLE_CLEARED, f" was cleared when {by} came"),
        End.PURGED: (Cause.POOL_FULL, f" was purged when {by} came"),
        End.SLEPT: (Cause.SLEPT, f" was given up during {by}"),
    }[loss.end]
    return Reason(cause=cause, text=f"{state(step)}, {loss.held} tokens{where},{what}")
