"""Where the states a server has computed are, and what became of those that are nowhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from harness.server.events import CacheListed, EntryListed

Steps = tuple[str, ...]
"""The step that left a state, last; before it those whose states it has all of."""


class Via(StrEnum):
    """How a state came into its slot."""

    COMPUTED = "computed"
    CACHE = "prompt cache"
    FILE = "slot file"


@dataclass(frozen=True, slots=True)
class Held:
    """A state in a slot."""

    steps: Steps
    """None where it is not known."""
    tokens: int
    """-1 where it is not known."""
    via: Via = Via.COMPUTED
    unsaved: str = ""
    """Why the prompt cache did not take it, where it was offered."""
    shifted: bool = False
    """Whether its beginning was dropped, for want of context."""
    copied: bool = False
    """Whether an entry has all of its tokens, of which the log does not tell which one."""

    @property
    def step(self) -> str:
        """The step that left it; empty where it is not known."""
        return self.steps[-1] if self.steps else ""


@dataclass(slots=True)
class Entry:
    """A state in the prompt cache."""

    steps: Steps
    """None where it is not known."""
    tokens: int
    address: str = ""
    """As the log prints it; empty until it has."""
    shifted: bool = False
    """As in `Held`."""


class End(StrEnum):
    """How the last copy of a state came to its end."""

    EVICTED = "evicted"
    VANISHED = "no entry any more, for no reason that is told"
    CUT = "cut after it was restored"
    DISCARDED = "cleared, after it was restored, for a change of adapters"
    ADAPTERS = "cleared in its slot for a change of adapters"
    OVERWRITTEN = "overwritten in its slot"
    NOT_TAKEN = "not taken by the prompt cache"
    COPIED = "not taken by the prompt cache, where the same tokens were"
    NO_COMPLETION = "overwritten by a request that is no completion"
    NOT_CACHED = "overwritten by a request that is not to use what is cached"
    CLEARED = "cleared in a slot"
    PURGED = "purged, since the KV pool was full"
    NO_ROOM = "cleared, since another state could not be restored"
    REPLACED = "replaced by a slot file"
    EMPTY_FILE = "brought by a slot file with nothing in it"
    FILE_REFUSED = "cleared for a slot file that was refused"
    SLEPT = "given up by a server that went to sleep"


@dataclass(frozen=True, slots=True)
class Loss:
    """The end of a state."""

    end: End
    by: str
    """The step during which it came."""
    slot: int | None = None
    held: int = 0
    """Tokens the state had."""
    kept: int = 0
    """Tokens that were kept of it."""
    why: str = ""
    """What the log says beside."""


@dataclass(slots=True)
class Chronicle:
    """Follows the states of one server from step to step; each goes by the step that left it.

    It is exact where one request comes after another.
    """

    slots: dict[int, Held] = field(default_factory=dict)
    """By number; none that is empty."""
    entries: list[Entry] = field(default_factory=list)
    """Of the prompt cache, the oldest first."""
    losses: dict[str, Loss] = field(default_factory=dict)
    """By step, of states that are nowhere any more."""
    users: dict[int, str] = field(default_factory=dict)
    """The step whose request a slot had last."""
    limits: CacheListed | None = None
    """The last the server said of the prompt cache as a whole."""
    refusing: tuple[str, int] | None = None
    """A step whose slot file was refused, and its slot, until the log tells of it."""

    def hold(self, slot: int, held: Held) -> None:
        """A state is in a slot, which was empty."""
        self.slots[slot] = held
        for step in held.steps:
            self.losses.pop(step, None)

    def displace(self, slot: int, loss: Loss) -> None:
        """A slot is empty, by what `loss` says but for the number of tokens."""
        held = self.slots.pop(slot, None)
        if held is not None:
            end = End.COPIED if held.copied else loss.end
            self.lose(held.steps, replace(loss, end=end, held=held.tokens))

    def restore(self, step: str, slot: int, held: Held) -> None:
        """A step brought a state into a slot from a file, which may have nothing in it."""
        self.displace(slot, Loss(End.REPLACED, step, slot))
        if held.tokens:
            self.hold(slot, held)
        else:
            self.lose(held.steps, Loss(End.EMPTY_FILE, step, slot))

    def lose(self, steps: Steps, loss: Loss) -> None:
        """One copy of a state is gone; it is remembered of those that have no other."""
        for step in steps:
            if not self.in_slots(step) and not self.in_cache(step):
                self.losses[step] = loss

    def in_slots(self, step: str) -> list[int]:
        """The slots that have a step's state."""
        return [slot for slot, held in self.slots.items() if step in held.steps]

    def in_cache(self, step: str) -> Entry | None:
        """An entry that has a step's state."""
        return next((entry for entry in self.entries if step in entry.steps), None)

    def listed(self, found: Iterable[EntryListed]) -> list[Entry]:
        """Has the entries that the server lists, and no others; those that are gone."""
        before = self.entries
        self.entries = [_recognised(entry, before) for entry in found]
        return [entry for entry in before if not any(entry is other for other in self.entries)]


def _recognised(listed: EntryListed, known: Iterable[Entry]) -> Entry:
    """The entry that is listed: by its address or, just saved, by its length."""
    for entry in known:
        if entry.address in (listed.address, "") and entry.tokens == listed.tokens:
            entry.address = listed.address
            return entry
    return Entry((), listed.tokens, listed.address)
