"""How one request went through a server, as its log tells it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from harness.chronicle import Chronicle, End, Entry, Held, Loss, Via
from harness.server.events import (
    Aborted,
    AdaptersChanged,
    AlreadyCached,
    CacheListed,
    CacheUpdateStarted,
    CheckpointRestored,
    ChunkShifted,
    EntryCompared,
    EntryEvicted,
    EntryListed,
    EntryObsolete,
    EntryTaken,
    Event,
    FullReprocessing,
    IdleSlotSaving,
    Limit,
    LookupStarted,
    PromptKept,
    PromptNotSaved,
    PromptSaving,
    PromptStarted,
    RestoreFailed,
    Sleeping,
    SlotCleared,
    SlotPurged,
    SlotSelected,
    TaskEnded,
    TaskStarted,
)


@dataclass(slots=True)
class Course:
    """How a request went, as far as reuse is concerned."""

    slot: int | None = None
    """The slot it ran in; None where it never got one."""
    selected: SlotSelected | None = None
    updated: bool = False
    """Whether the prompt cache was gone to at all."""
    lookup: LookupStarted | None = None
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
    checkpoint: CheckpointRestored | None = None
    reprocessed: bool = False
    """Whether all was read for lack of a checkpoint."""
    shifted: int = 0
    """Tokens that `--cache-reuse` moved."""
    aborted: str = ""
    """Why the server ended itself, in its own words."""


def follow(
    chronicle: Chronicle, step: str, events: Iterable[Event], *, completion: bool = True
) -> Course:
    """How a step went, with what it changed told to the chronicle.

    `completion` is False for what is no request for text: that saves nothing.
    """
    reader = _Reader(chronicle, step, completion)
    for event in events:
        reader.read(event)
    return reader.course


@dataclass(slots=True)
class _Reader:
    """Reads the events of one step."""

    chronicle: Chronicle
    step: str
    completion: bool
    course: Course = field(default_factory=Course)
    current: int | None = None
    """The slot that lines without one are about."""
    saving: Entry | None = None
    """The entry that is about to be one."""
    purged: int | None = None
    obsolete: list[int] = field(default_factory=list)
    evicted: list[Limit] = field(default_factory=list)
    listed: list[EntryListed] = field(default_factory=list)
    awaited: int = 0
    """Entries still to be listed."""

    def read(self, event: Event) -> None:
        """What an event changes."""
        match event:
            case SlotSelected(slot=slot):
                self.course.selected, self.current = event, slot
            case TaskStarted(slot=slot):
                self.course.slot = slot
            case PromptStarted(slot=int(slot)):
                self.course.source = self.chronicle.slots.get(slot)
            case PromptKept(slot=int(slot), tokens=tokens) if self.course.kept is None:
                self.course.kept = tokens
                self._cut(slot, tokens)
            case TaskEnded(slot=int(slot), tokens=tokens):
                self._leave(slot, tokens)
            case CheckpointRestored():
                self.course.checkpoint = event
            case FullReprocessing():
                self.course.reprocessed = True
            case ChunkShifted(tokens=tokens):
                self.course.shifted += tokens
            case AdaptersChanged(slot=int(slot)):
                self.course.adapters_changed = event
                self._clear_for_adapters(slot)
            case SlotPurged(number=number):
                self.purged = number
            case SlotCleared(slot=int(slot)):
                self._clear(slot)
            case Aborted(message=message):
                self.course.aborted = message
            case Sleeping():
                self._sleep()
            case _:
                self._read_of_cache(event)

    def _read_of_cache(self, event: Event) -> None:
        """What an event changes in the prompt cache."""
        match event:
            case CacheUpdateStarted():
                self.course.updated = True
            case IdleSlotSaving(slot=slot):
                self.current = slot
            case PromptSaving(tokens=tokens):
                self._save(tokens)
            case AlreadyCached():
                self._save_no_more("")
            case PromptNotSaved(why=why):
                self._save_no_more(why)
            case EntryObsolete(tokens=tokens):
                self.obsolete.append(tokens)
            case EntryEvicted(limit=limit):
                self._evict(limit)
            case LookupStarted():
                self.course.lookup = event
            case EntryCompared():
                self.course.compared.append(event)
            case EntryTaken():
                self.course.taken = event
            case RestoreFailed():
                self.course.taken, self.course.restore_failed = None, True
            case CacheListed(prompts=prompts):
                self.listed, self.awaited = [], prompts
                if not prompts:
                    self._reconcile()
            case EntryListed() if self.awaited:
                self.listed.append(event)
                if len(self.listed) == self.awaited:
                    self._reconcile()
            case _:
                pass

    def _loss(self, end: End, slot: int | None = None) -> Loss:
        return Loss(end, self.step, slot)

    def _save(self, tokens: int) -> None:
        """What is in the current slot becomes an entry, unless the next line says otherwise."""
        held = None if self.current is None else self.chronicle.slots.get(self.current)
        self.saving = Entry(held.steps if held else (), tokens)
        self.chronicle.entries.append(self.saving)

    def _save_no_more(self, why: str) -> None:
        """It does not; without a reason, since an entry has it: its own, or the longest."""
        saving, self.saving = self.saving, None
        if saving is None:
            return
        self.chronicle.entries.pop()
        if why:
            self._mark_unsaved(why)
        elif not any(set(saving.steps) & set(entry.steps) for entry in self.chronicle.entries):
            longest = max(self.chronicle.entries, key=lambda entry: entry.tokens, default=None)
            if longest is not None:
                longest.steps = (*saving.steps, *longest.steps)

    def _mark_unsaved(self, why: str) -> None:
        held = None if self.current is None else self.chronicle.slots.get(self.current)
        if self.current is not None and held is not None:
            self.chronicle.slots[self.current] = replace(held, unsaved=why)

    def _evict(self, limit: Limit) -> None:
        """The oldest entry is gone: at once, where it makes room, since its address may come again.

        Otherwise one may have been taken before, which only the list of entries tells.
        """
        if limit is not Limit.ROOM:
            self.evicted.append(limit)
            return
        oldest = self.chronicle.entries[0] if self.chronicle.entries else None
        if oldest is not None and oldest is not self.saving:
            del self.chronicle.entries[0]
            self._lose_entry(oldest, limit.value)

    def _lose_entry(self, entry: Entry, why: str) -> None:
        loss = replace(self._loss(End.EVICTED), held=entry.tokens, why=why)
        self.chronicle.lose(entry.steps, loss)

    def _reconcile(self) -> None:
        """All entries are listed: finds out what became of those that are gone."""
        gone = self.chronicle.listed(self.listed)
        for tokens in self.obsolete:
            entry = next((entry for entry in gone if entry.tokens == tokens), None)
            if entry is not None:
                self._supersede(entry)
                gone.remove(entry)
        taken = self._taken_of(gone)
        if taken is not None:
            gone.remove(taken)
            self._restore(taken)
        for number, entry in enumerate(gone):  # the oldest are evicted first, and listed first
            known = number < len(self.evicted)
            self._lose_entry(entry, self.evicted[number].value if known else "")
        self.obsolete, self.evicted, self.saving, self.awaited = [], [], None, 0

    def _supersede(self, entry: Entry) -> None:
        """An entry is gone since the one just saved has all of it."""
        if self.saving is not None:
            self.saving.steps = (*entry.steps, *self.saving.steps)

    def _taken_of(self, gone: list[Entry]) -> Entry | None:
        """The entry that was restored, one of those that are gone."""
        taken = self.course.taken
        if taken is None or self.course.restored is not None or not gone:
            return None
        lengths = [
            compared.tokens
            for compared in self.course.compared
            if (compared.f_keep, compared.f_sim) == (taken.f_keep, taken.f_sim)
        ]
        alike = [entry for entry in gone if entry.tokens in lengths]
        return (alike or gone)[-1]

    def _restore(self, entry: Entry) -> None:
        """An entry is in the slot now, instead of what was there."""
        self.course.restored = Held(entry.steps or ("?",), entry.tokens, Via.CACHE)
        if self.current is not None:
            self.chronicle.displace(self.current, self._loss(End.OVERWRITTEN, self.current))
            self.chronicle.hold(self.current, self.course.restored)

    def _clear(self, slot: int) -> None:
        """A slot is emptied that is not the request's own."""
        held = self.chronicle.slots.get(slot)
        loss = self._loss(End.PURGED if slot == self.purged else End.IDLE, slot)
        if slot in self.chronicle.suspects:
            loss = replace(loss, end=End.FILE_REFUSED, by=self.chronicle.suspects[slot])
        elif held is not None and held.unsaved:
            loss = replace(loss, end=End.NOT_TAKEN, why=held.unsaved)
        self.chronicle.displace(slot, loss)

    def _clear_for_adapters(self, slot: int) -> None:
        held = self.course.discarded = self.chronicle.slots.get(slot)
        restored = held is not None and held is self.course.restored
        self.chronicle.displace(slot, self._loss(End.DISCARDED if restored else End.ADAPTERS, slot))

    def _cut(self, slot: int, kept: int) -> None:
        """The prompt goes on after this many tokens of what is in its slot."""
        held = self.chronicle.slots.get(slot)
        if held is not None and held.tokens > kept:
            loss = replace(self._loss(self._end_of(held), slot), kept=kept, why=held.unsaved)
            self.chronicle.displace(slot, loss)

    def _end_of(self, held: Held) -> End:
        """What it means for a state in the request's slot that it was cut."""
        if held.unsaved:
            return End.NOT_TAKEN
        if not self.completion:
            return End.NO_COMPLETION
        return End.CUT if held is self.course.restored else End.OVERWRITTEN

    def _leave(self, slot: int, tokens: int) -> None:
        """The step's own state is in its slot; what is still there of before is a part of it."""
        before = self.chronicle.slots.get(slot)
        steps = before.steps if before else ()
        self.chronicle.hold(slot, Held((*steps, self.step), tokens))

    def _sleep(self) -> None:
        for slot in list(self.chronicle.slots):
            self.chronicle.displace(slot, self._loss(End.SLEPT, slot))
        for entry in self.chronicle.listed([]):
            loss = replace(self._loss(End.SLEPT), held=entry.tokens)
            self.chronicle.lose(entry.steps, loss)
