"""Why a request did not find the state it should have found, or not all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.cause import Cause
from harness.ledger import Reason, RequestRow
from harness.reasons.chronicle import Chronicle, End, Entry, Held, Loss, Via
from harness.reasons.course import KEEP_ENTRY, KEEP_SLOT, Course, Rules
from harness.setting import Setting


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
        )

    @property
    def tokens(self) -> int:
        """How many the state had; 0 where it is not known."""
        if self.entry is not None:
            return self.entry.tokens
        if self.slots:
            return max(0, self.held[self.slots[0]].tokens)
        return self.loss.held if self.loss else 0


def nearest(wanted: Sequence[Whereabouts], course: Course) -> Whereabouts | None:
    """Of states that have as much of a prompt the one that the server was nearest to using.

    In the slot before in the prompt cache, before in another slot, before nowhere; of several the
    last.
    """

    def distance(at: Whereabouts) -> int:
        restored = course.restored is not None and at.step in course.restored.steps
        found = (course.slot in at.slots, restored, at.entry is not None, bool(at.slots))
        return found.index(True) if any(found) else len(found)

    return min(reversed(wanted), key=distance, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A request that reused less than some state has, and all that tells why."""

    row: RequestRow
    course: Course
    slot: int
    """The one it ran in."""
    at: Whereabouts
    lost_since: Loss | None
    """What became of the state by the end of the request, where it is nowhere then."""
    rules: Rules
    settings: Mapping[str, Setting]
    """The adapters in force at each step so far."""

    def reason(self) -> Reason:
        """Why."""
        at, restored = self.at, self.course.restored
        if self.slot in at.slots:
            return self._short_in_slot(at.held[self.slot])
        if restored is not None and at.step in restored.steps:
            return self._short_of("came from the prompt cache", restored)
        if self._as_good_in_slot():
            return self._short_of(f"is also in slot {self.slot}", at.held[self.slot])
        if self._unlike():
            return self._nothing_similar()
        if at.entry is not None:
            return self._not_restored(at.entry)
        if at.slots:
            return self._elsewhere()
        if at.loss is not None:
            return lost(at.step, at.loss, self.settings)
        return self._reason(Cause.UNKNOWN, "is nowhere the log tells of")

    def _reason(self, cause: Cause, what: str) -> Reason:
        return Reason(cause=cause, text=f"{state(self.at.step)} {what}")

    def _unlike(self) -> bool:
        """Whether the state, which was not in the slot, has too little in common to be looked for.

        A slot is chosen for a large enough share of the prompt, an entry for one of itself.
        """
        if self.row.shared > self.rules.similarity * self.row.prompt_tokens:
            return False
        passed_over = self.at.slots and not self.at.entry and self.row.slot_asked is None
        return bool(passed_over or self.row.shared < KEEP_ENTRY * self.at.tokens)

    def _nothing_similar(self) -> Reason:
        share = f"shares {self.row.shared} of the prompt's {self.row.prompt_tokens} tokens"
        best = f"the best match, {state(self.at.step)}, {share}"
        return Reason(cause=Cause.NOTHING_SIMILAR, text=best)

    def _short_in_slot(self, held: Held) -> Reason:
        """The state was in the very slot that was used."""
        where, other = f"was in slot {self.slot}", self.course.restored
        if held.via is Via.FILE and held.tokens < self.row.shared:
            return Reason(
                cause=Cause.NEVER_WRITTEN,
                text=f"the slot file with {state(self.at.step)} has {held.tokens} tokens, "
                "as the slot had when it was saved",
            )
        if other is not None:
            over = f"that of {other.step!r}, {other.tokens} tokens, was restored over it"
            return self._reason(Cause.BELOW_THRESHOLD, f"{where}, and {over}")
        if self.course.restore_failed is not None:
            cleared = "was cleared, since another state could not be restored"
            return self._reason(Cause.POOL_FULL, f"{where}, which {cleared}")
        return self._short_of(where, held)

    def _short_of(self, where: str, held: Held) -> Reason:
        """The state was in the slot by the time the request was launched."""
        course = self.course
        if course.discarded is not None:
            return self._reason(Cause.DISCARDED, f"{where}, and was cleared: {self._adapters()}")
        if course.checkpoint is not None:
            last = f"its checkpoint after {course.checkpoint.n_past} of {self.row.shared} tokens"
            return self._reason(Cause.NO_CHECKPOINT, f"{where}, and was resumed at {last}")
        if course.cut_failed:
            return self._reason(Cause.NO_CHECKPOINT, f"{where}, and could not be cut back")
        if course.reprocessed:
            return self._reason(Cause.NO_CHECKPOINT, f"{where}, and {self._no_checkpoint(held)}")
        if held.shifted:
            shifted = "its beginning had been dropped, for want of context"
            return self._reason(Cause.CONTEXT_SHIFTED, f"{where}, and {shifted}")
        used = f"{where}, and {self.row.cache_n} tokens of it were used"
        return self._reason(Cause.UNKNOWN, used)

    def _adapters(self) -> str:
        """How the adapters changed for which a slot was cleared."""
        changed, user = self.course.adapters_changed, self.course.user
        if changed is not None and not changed.before:
            return f"slot {self.slot} had had no request, and so no adapters"
        there, here = self.settings.get(user or ""), Setting.of(self.row.setting)
        if there is None or there == here:
            return f"the last request of slot {self.slot} had other adapters"
        return f"the last request of slot {self.slot}, {user!r}, had {there}, and this has {here}"

    def _no_checkpoint(self, held: Held) -> str:
        if held.via is Via.FILE:
            return "a slot file has no checkpoints"
        tried = self.course.tried
        return f"none of its {tried} checkpoints could be used" if tried else "it has no checkpoint"

    def _as_good_in_slot(self) -> bool:
        """Whether the slot that was used shared as much, and it was memory that fell short."""
        held = self.at.held.get(self.slot)
        if held is None or not (self.course.reprocessed or self.course.checkpoint):
            return False
        return (self.course.shares(self.slot, held.tokens) or 0) >= self.row.shared

    def _not_restored(self, entry: Entry) -> Reason:
        """The state was in the prompt cache, and stayed there."""
        course, other = self.course, self.course.restored
        if course.lookup is None:
            return self._not_looked_up()
        seen = any(self.at.step in steps for steps in course.looked_through)
        if self.lost_since is not None and not seen:  # by what this very request had saved
            return lost(self.at.step, self.lost_since, self.settings)
        if course.restore_failed is not None:
            size = f"{course.restore_failed.bytes} bytes could not be restored"
            return self._cached(Cause.POOL_FULL, f"of what was found there, {size}")
        if other is not None:
            taken = f"that of {other.step!r}, {other.tokens} tokens, was taken"
            return self._cached(Cause.BELOW_THRESHOLD, taken)
        return self._below(entry)

    def _cached(self, cause: Cause, what: str) -> Reason:
        return self._reason(cause, f"was in the prompt cache; {what}")

    def _below(self, entry: Entry) -> Reason:
        """Which threshold an entry did not pass."""
        if entry.shifted:
            return self._cached(Cause.CONTEXT_SHIFTED, "its beginning had been dropped")
        shared, f_keep, f_sim = self._shares_of(entry)
        if f_keep < KEEP_ENTRY:
            few = f"{shared} of its {entry.tokens} tokens, f_keep {f_keep:.3f} < {KEEP_ENTRY}"
            return self._cached(Cause.BELOW_THRESHOLD, few)
        numbers, base = f"f_keep {f_keep:.3f} and f_sim {f_sim:.3f}", self.course.lookup
        if base is None or (f_keep > base.f_keep and f_sim > base.f_sim):
            return self._cached(Cause.UNKNOWN, f"{numbers} were good enough")
        than = f"not both better than the slot's {base.f_keep:.3f} and {base.f_sim:.3f}"
        return self._cached(Cause.BELOW_THRESHOLD, f"{numbers} are {than}")

    def _shares_of(self, entry: Entry) -> tuple[int, float, float]:
        """What an entry has of the prompt, as the server compared it; in its precision."""
        shared = self.row.shared
        for compared in self.course.compared:
            if compared.tokens == entry.tokens and compared.shared - shared in (0, 1):
                return compared.shared, compared.f_keep, compared.f_sim
        return shared, round(shared / entry.tokens, 3), round(shared / self.row.prompt_tokens, 3)

    def _not_looked_up(self) -> Reason:
        """What kept the request from the prompt cache."""
        selected, here = self.course.selected, self.at.held.get(self.slot)
        f_keep = self.course.f_keep(self.slot, here.tokens) if here else None
        if here and f_keep is not None and f_keep >= KEEP_SLOT:
            return self._kept(here, f"f_keep {f_keep:.3f} >= {KEEP_SLOT} is enough")
        if self.row.slot_asked is None:
            return self._cached(Cause.UNKNOWN, "it was not looked for")
        if selected is None:
            return self._cached(Cause.PINNED, "this build does not look there for a pinned slot")
        if not self.rules.similarity:
            compared = f"slot {self.slot} was asked for, and nothing compared"
            return self._cached(Cause.SIMILARITY_OFF, compared)
        if here is None:
            return self._cached(Cause.PINNED, f"slot {self.slot} was asked for, and empty")
        if f_keep is not None:
            return self._cached(Cause.UNKNOWN, "it was not looked for")
        return self._kept(here, f"not to look further takes an f_keep >= {KEEP_SLOT}")

    def _kept(self, here: Held, why: str) -> Reason:
        what = f"slot {self.slot} had that of {here.step!r}, {here.tokens} tokens"
        return self._cached(Cause.SLOT_KEEPS_ENOUGH, f"{what}, and {why}")

    def _elsewhere(self) -> Reason:
        """The state was in another slot."""
        slot, other = self.slot, self.course.discarded
        where = f"was in slot {self.at.slots[0]}"
        if self.row.slot_asked is not None:
            return self._reason(Cause.OTHER_SLOT, f"{where}, and slot {slot} was asked for")
        if other is not None:
            chosen = f"slot {slot} was chosen, and {state(other.step)} there was cleared"
            return self._reason(Cause.DISCARDED, f"{where}; {chosen}: {self._adapters()}")
        if not self.rules.similarity:
            return self._reason(Cause.SIMILARITY_OFF, f"{where}, and slot {slot} came next")
        return self._reason(Cause.UNKNOWN, f"{where}, and slot {slot} was used")


def state(step: str) -> str:
    """What a step left, in words."""
    return f"the state of {step!r}" if step else "an unknown state"


def lost(step: str, loss: Loss, settings: Mapping[str, Setting]) -> Reason:
    """What became of a state that is nowhere any more."""
    cause, text = LOST[loss.end]
    what = f"{state(step)} ({loss.held} tokens)"
    there, here = settings.get(step), settings.get(loss.by)
    words = {
        "name": state(step),
        "state": what,
        "had": f"slot {loss.slot}, which had {what},",
        "slot": loss.slot,
        "by": repr(loss.by),
        "kept": f"kept {loss.kept} of them",
        "why": loss.why,
        "adapters": "its adapters" if there in (None, here) else f"{here} instead of {there}",
        "unsaved": f"; {loss.why}, so nothing was saved" if loss.why else "",
    }
    return Reason(cause=cause, text=text.format_map(words))


LOST: Mapping[End, tuple[Cause, str]] = {
    End.EVICTED: (Cause.EVICTED, "{state} was the oldest entry when {by} came: {why}"),
    End.VANISHED: (Cause.UNKNOWN, "{state} was an entry until {by} came"),
    End.CUT: (Cause.CONSUMED, "{state} was restored into slot {slot} for {by}, which {kept}"),
    End.DISCARDED: (
        Cause.CONSUMED,
        "{state} was restored into slot {slot} for {by}, and cleared for {adapters}",
    ),
    End.OVERWRITTEN: (Cause.SLOT_TAKEN, "{had} went to {by}, which {kept}{unsaved}"),
    End.ADAPTERS: (Cause.SLOT_TAKEN, "{had} went to {by}, and was cleared for {adapters}"),
    End.REPLACED: (Cause.SLOT_TAKEN, "{had} was given the slot file of {by}"),
    End.EMPTY_FILE: (
        Cause.NEVER_WRITTEN,
        "the slot file with {name} has 0 tokens, as the slot had when it was saved",
    ),
    End.NOT_CACHED: (Cause.NEVER_WRITTEN, "{had} went to {by}, whose cache_prompt is false"),
    End.NO_COMPLETION: (Cause.NEVER_WRITTEN, "{had} went to {by}, which is no completion"),
    End.COPIED: (
        Cause.NEVER_WRITTEN,
        "{had} went to {by}: an entry had the same tokens, if not the same adapters",
    ),
    End.NOT_TAKEN: (Cause.NEVER_WRITTEN, "{had} went to {by}: {why}"),
    End.FILE_REFUSED: (
        Cause.FILE_REFUSED,
        "{had} was cleared for the slot file of {by}, which was refused",
    ),
    End.CLEARED: (Cause.CLEARED, "{had} was cleared when {by} came"),
    End.PURGED: (Cause.POOL_FULL, "{had} was purged when {by} came"),
    End.NO_ROOM: (
        Cause.POOL_FULL,
        "{had} was cleared, since no other state could be restored for {by}",
    ),
    End.SLEPT: (Cause.SLEPT, "{state} was given up"),
}
"""The reason for each end, and how it is put into words."""
