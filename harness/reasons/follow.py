"""Follows a server through the log of one step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from harness.reasons.chronicle import Chronicle, End, Held, Loss
from harness.reasons.course import KEEP_SLOT, Course, note
from harness.reasons.entries import Entries
from harness.server.events import (
    AdaptersChanged,
    CutFailed,
    Event,
    FileRefused,
    IdleSlotSaving,
    PromptKept,
    PromptStarted,
    Sleeping,
    SlotCleared,
    SlotPurged,
    SlotSelected,
    TaskEnded,
    TaskStarted,
)


def follow(
    chronicle: Chronicle,
    step: str,
    events: Iterable[Event],
    *,
    prompt_tokens: int = 0,
    cached: bool = True,
    prompt_cache: bool = True,
) -> Course:
    """How a step went, with what it changed told to the chronicle.

    `prompt_tokens` is 0 for what is no request for text, which saves nothing; `cached` is False for
    a request with `cache_prompt: false`, and `prompt_cache` for a server without one.
    """
    overwritten = End.OVERWRITTEN if cached else End.NOT_CACHED
    follower = _Follower(
        chronicle,
        step,
        prompt_tokens,
        overwritten if prompt_tokens else End.NO_COMPLETION,
        prompt_cache,
    )
    for event in events:
        follower.read(event)
    return follower.course


@dataclass(slots=True)
class _Follower:
    """Reads the events of one step."""

    chronicle: Chronicle
    step: str
    prompt_tokens: int
    overwritten: End
    """What it means for a state that this request cuts it."""
    prompt_cache: bool
    course: Course = field(default_factory=Course)
    entries: Entries = field(init=False)
    purged: int | None = None

    def __post_init__(self) -> None:
        self.entries = Entries(self.chronicle, self.step, self.course, self.prompt_tokens)

    def read(self, event: Event) -> None:
        """What an event changes."""
        note(event, self.course)
        restored = self.entries.read(event)
        if restored is not None:
            self._restore(restored)
        match event:
            case SlotSelected(slot=slot) | IdleSlotSaving(slot=slot):
                self.entries.slot = slot
            case AdaptersChanged(slot=int(slot)):
                self._clear_for_adapters(slot)
            case PromptStarted(slot=int(slot)):
                self.course.source = self.chronicle.slots.get(slot)
            case PromptKept(slot=int(slot), tokens=tokens) if self.course.kept is None:
                self.course.kept = tokens
                self._cut(slot, tokens)
            case CutFailed(slot=int(slot)):
                self.course.kept = 0
                self._cut(slot, 0)
            case TaskStarted(slot=int(slot)):
                self.course.user = self.chronicle.users.get(slot)
                self.chronicle.users[slot] = self.step
            case TaskEnded(slot=int(slot), tokens=tokens):
                self._leave(slot, tokens)
            case SlotPurged(number=number):
                self.purged = number
            case SlotCleared(slot=int(slot)):
                self._clear(slot)
            case FileRefused():
                self._refuse()
                self.chronicle.refusing = None
            case Sleeping():
                self._sleep()
            case _:
                pass

    def _loss(self, end: End, slot: int | None = None) -> Loss:
        return Loss(end, self.step, slot)

    def _displace(self, slot: int, end: End, kept: int = 0) -> None:
        """What is in a slot is so no longer; where the prompt cache had refused it, by that."""
        held = self.chronicle.slots.get(slot)
        if held is None:
            return
        loss = replace(self._loss(end, slot), kept=kept)
        if held.unsaved:
            loss = replace(loss, end=End.NOT_TAKEN, why=held.unsaved)
        elif end is End.OVERWRITTEN:
            loss = replace(loss, why=self._kept_enough(slot, held))
        self.chronicle.displace(slot, loss)

    def _kept_enough(self, slot: int, held: Held) -> str:
        """Why a state was not saved; empty where the log does not tell."""
        if not self.prompt_cache:
            return "there is no prompt cache"
        f_keep = self.course.f_keep(slot, held.tokens)
        return f"f_keep {f_keep:.3f} >= {KEEP_SLOT}" if f_keep and f_keep >= KEEP_SLOT else ""

    def _restore(self, held: Held) -> None:
        """An entry is in the slot, instead of what was there."""
        self.course.restored = held
        if self.entries.slot is not None:
            self._displace(self.entries.slot, self.overwritten)
            self.chronicle.hold(self.entries.slot, held)

    def _clear_for_adapters(self, slot: int) -> None:
        held = self.course.discarded = self.chronicle.slots.get(slot)
        restored = held is not None and held is self.course.restored
        self._displace(slot, End.DISCARDED if restored else End.ADAPTERS)

    def _cut(self, slot: int, kept: int) -> None:
        """The prompt goes on after this many tokens of what is in its slot."""
        held = self.chronicle.slots.get(slot)
        if held is not None and held.tokens > kept:
            restored = held is self.course.restored
            self._displace(slot, End.CUT if restored else self.overwritten, kept)

    def _leave(self, slot: int, tokens: int) -> None:
        """The step's own state is in its slot; what is still there of before is a part of it."""
        before = self.chronicle.slots.get(slot)
        steps = before.steps if before else ()
        shifted = self.course.context_shifted
        self.chronicle.hold(slot, Held((*steps, self.step), tokens, shifted=shifted))

    def _clear(self, slot: int) -> None:
        """A slot is emptied; why, the lines before it tell."""
        refusing = self.chronicle.refusing
        if refusing is not None and refusing[1] == slot:
            self._refuse()
        elif slot == self.purged:
            self._displace(slot, End.PURGED)
        elif self.course.restore_failed and slot == self.entries.slot:
            self._displace(slot, End.NO_ROOM)
        else:
            self._displace(slot, End.CLEARED)

    def _refuse(self) -> None:
        """A slot file was refused, which empties the slot; builds differ in whether they say so."""
        if self.chronicle.refusing is not None:
            step, slot = self.chronicle.refusing
            self.chronicle.displace(slot, Loss(End.FILE_REFUSED, step, slot))

    def _sleep(self) -> None:
        for slot in list(self.chronicle.slots):
            self.chronicle.displace(slot, self._loss(End.SLEPT, slot))
        for entry in self.chronicle.listed([]):
            loss = replace(self._loss(End.SLEPT), held=entry.tokens)
            self.chronicle.lose(entry.steps, loss)
