"""The prompt cache in a server's log: what is saved, given up and restored, and for whom."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from harness.reasons.chronicle import Chronicle, End, Entry, Held, Loss, Via
from harness.reasons.course import Course
from harness.server.events import (
    AlreadyCached,
    CacheListed,
    EntryEvicted,
    EntryListed,
    EntryObsolete,
    EntryTaken,
    Event,
    Limit,
    LookupStarted,
    PromptNotSaved,
    PromptSaving,
    RestoreFailed,
)


@dataclass(slots=True)
class Entries:
    """Reads the events of one step that change entries into the chronicle."""

    chronicle: Chronicle
    step: str
    course: Course
    prompt_tokens: int
    slot: int | None = None
    """The one that is saved, and restored into."""
    _saving: Entry | None = None
    _taken: EntryTaken | None = None
    _evicted: list[Limit] = field(default_factory=list)
    _listed: list[EntryListed] = field(default_factory=list)
    _awaited: int = 0
    """Entries still to be listed."""

    def read(self, event: Event) -> Held | None:
        """What an event changes. A state that is now in the slot, instead of what was there."""
        match event:
            case PromptSaving(tokens=tokens):
                self._save(tokens)
            case AlreadyCached():
                self._share(self._save_no_more())
            case PromptNotSaved(why=why):
                self._save_no_more()
                self._mark_unsaved(why)
            case EntryObsolete(tokens=tokens):
                self._supersede(tokens)
            case EntryEvicted(limit=limit):
                self._evict(limit)
            case LookupStarted():
                self.course.looked_through = tuple(e.steps for e in self.chronicle.entries)
            case EntryTaken():
                self._taken = event
            case RestoreFailed():
                self._taken = None
            case CacheListed(prompts=prompts):
                self.chronicle.limits, self._listed, self._awaited = event, [], prompts
                return None if prompts else self._reconcile()
            case EntryListed() if self._awaited:
                self._listed.append(event)
                return self._reconcile() if len(self._listed) == self._awaited else None
            case _:
                pass
        return None

    def _held(self) -> Held | None:
        return None if self.slot is None else self.chronicle.slots.get(self.slot)

    def _save(self, tokens: int) -> None:
        """What is in the slot becomes an entry, unless the next line says otherwise."""
        held = self._held()
        self._saving = Entry(held.steps if held else (), tokens)
        self._saving.shifted = held is not None and held.shifted
        self.chronicle.entries.append(self._saving)

    def _save_no_more(self) -> Entry | None:
        saving, self._saving = self._saving, None
        if saving is not None:
            self.chronicle.entries.remove(saving)
        return saving

    def _share(self, saving: Entry | None) -> None:
        """An entry has all of a state's tokens already, and the log does not say which."""
        if saving is None or any(self.chronicle.in_cache(step) for step in saving.steps):
            return
        long = [entry for entry in self.chronicle.entries if entry.tokens >= saving.tokens]
        held = self._held()
        if len(long) == 1:
            long[0].steps = (*saving.steps, *long[0].steps)
        elif self.slot is not None and held is not None:
            self.chronicle.slots[self.slot] = replace(held, copied=True)

    def _mark_unsaved(self, why: str) -> None:
        held = self._held()
        if self.slot is not None and held is not None:
            self.chronicle.slots[self.slot] = replace(held, unsaved=why)

    def _supersede(self, tokens: int) -> None:
        """An entry of this length is gone, since the one being saved has all of it."""
        saving = self._saving
        alike = [e for e in self.chronicle.entries if e.tokens == tokens and e is not saving]
        if saving is None or not alike:
            return
        known = (entry for entry in alike if set(entry.steps) & set(saving.steps))
        entry = next(known, alike[0])
        self.chronicle.entries.remove(entry)
        saving.steps = (*(s for s in entry.steps if s not in saving.steps), *saving.steps)

    def _evict(self, limit: Limit) -> None:
        """The oldest entry is gone: at once, where it makes room, since its address may come again.

        Otherwise one may have been taken before, which only the list of entries tells.
        """
        if limit is not Limit.ROOM:
            self._evicted.append(limit)
            return
        oldest = next(iter(self.chronicle.entries), None)
        if oldest is not None and oldest is not self._saving:
            self.chronicle.entries.remove(oldest)
            self._lose(oldest, limit)

    def _lose(self, entry: Entry, limit: Limit | None) -> None:
        limits, why = self.chronicle.limits, limit.value if limit else ""
        if limits is not None:
            why += f" (limits: {limits.limit_mib:g} MiB, {limits.limit_tokens} tokens)"
        end = End.EVICTED if limit else End.VANISHED
        self.chronicle.lose(entry.steps, Loss(end, self.step, held=entry.tokens, why=why))

    def _reconcile(self) -> Held | None:
        """All entries are listed: finds out what became of those that are gone."""
        gone = self.chronicle.listed(self._listed)
        taken = self._taken_of(gone)
        if taken is not None:
            gone.remove(taken)
        for number, entry in enumerate(gone):  # the oldest are evicted first, and listed first
            self._lose(entry, self._evicted[number] if number < len(self._evicted) else None)
        self._taken, self._evicted, self._saving, self._awaited = None, [], None, 0
        if taken is None:
            return None
        return Held(taken.steps, taken.tokens, Via.CACHE, shifted=taken.shifted)

    def _taken_of(self, gone: list[Entry]) -> Entry | None:
        """The entry that was restored, one of those that are gone.

        It is told by its length: builds before b10178 print no more than its shares, of which that
        follows. Of several as long it is the last, since the oldest may have been evicted.
        """
        if self._taken is None or not gone:
            return None
        shares = self._taken.f_keep, self._taken.f_sim
        lengths = [c.tokens for c in self.course.compared if (c.f_keep, c.f_sim) == shares]
        if not lengths and shares[0]:
            lengths = [round(shares[1] * self.prompt_tokens / shares[0])]
        return min(reversed(gone), key=lambda entry: _distance(entry.tokens, lengths))


def _distance(tokens: int, lengths: list[int]) -> int:
    return min((abs(tokens - length) for length in lengths), default=0)
