"""Slot files that are kept wrongly, each in one way."""

from __future__ import annotations

from typing import NoReturn

from tests.harness.fronts.fleet import Answer, Body, RealServer, Scales
from tests.harness.fronts.slot_files import SlotFiles


class RestoresNothing(SlotFiles):
    """Says that it restored, and has nothing of it."""

    def restored(self, slot: int, server: RealServer, answer: Answer) -> Answer:
        server.slot(slot, "erase")
        return answer


class RestoresNextDoor(SlotFiles):
    """Restores into the slot after the one that was asked for, and empties that."""

    def restore(self, slot: int, name: str) -> Answer:
        answer = super().restore((slot + 1) % self.fleet.line.parallel, name)
        if answer.status != 200:
            return answer
        self.fleet.first.slot(slot, "erase")
        return answer.edited(lambda reply: {**reply, "id_slot": slot})


class EmptiesOtherSlots(SlotFiles):
    """Empties all slots but the one it restores into."""

    def restored(self, slot: int, server: RealServer, answer: Answer) -> Answer:
        for other in set(range(self.fleet.line.parallel)) - {slot}:
            server.slot(other, "erase")
        return answer


class SavesWhatIsThere(SlotFiles):
    """Saves what is in the slot by now, rather than what the last request left there."""

    def save(self, slot: int, name: str) -> Answer:
        if slot in self._held:
            self.answered(slot, self._held[slot].server)
        return super().save(slot, name)


class WithoutAdapters(SlotFiles):
    """Takes every file for one that was computed under the server-wide scales."""

    def server(self, scales: Scales) -> RealServer:
        return self.fleet.first


class WithoutChecksum(SlotFiles):
    """Does not notice that a file was changed."""

    def is_changed(self, name: str) -> bool:
        return False


class EmptiesWhenRefusing(SlotFiles):
    """Has emptied the slot by the time it knows that a file cannot be restored."""

    def refuse(self, slot: int, why: str) -> Answer:
        self.fleet.first.slot(slot, "erase")
        return super().refuse(slot, why)


class DiesWhenRefusing(SlotFiles):
    """Does not survive what cannot be saved or restored."""

    def save(self, slot: int, name: str) -> Answer:
        answer = super().save(slot, name)
        return answer if answer.status == 200 else self._die()

    def refuse(self, slot: int, why: str) -> Answer:
        return self._die()

    def _die(self) -> NoReturn:
        self.fleet.first.kill()
        raise ConnectionError("the real server was killed")  # nobody is left to answer


class PoisonsWhenRefusing(SlotFiles):
    """Leaves other KV in a slot when a file cannot be restored into it, under the same tokens."""

    def refuse(self, slot: int, why: str) -> Answer:
        if (held := self._held.get(slot)) is not None:
            poisoned = held.file.with_name(".poisoned")
            poisoned.write_bytes(_other_kv(held.file.read_bytes()))
            held.server.slot(slot, "restore", poisoned.name)
        return super().refuse(slot, why)


class MisreportsSaves(SlotFiles):
    """Tells of one byte too many, whenever it writes a file."""

    def save(self, slot: int, name: str) -> Answer:
        answer = super().save(slot, name)
        if answer.status != 200:
            return answer
        return answer.edited(lambda reply: {**reply, "n_written": reply["n_written"] + 1})


class AcceptsAnyFile(SlotFiles):
    """Says that it restored what it did not."""

    def refuse(self, slot: int, why: str) -> Answer:
        reply: Body = {"id_slot": slot, "n_restored": 0, "n_read": 0}
        return Answer.of({**reply, "timings": {"restore_ms": 1.0}})


class Misreports(SlotFiles):
    """Tells of one byte too many, whenever it reads a file."""

    def restored(self, slot: int, server: RealServer, answer: Answer) -> Answer:
        return answer.edited(lambda reply: {**reply, "n_read": reply["n_read"] + 1})


def _other_kv(content: bytes) -> bytes:
    """With other mantissas in the last fifth: values of the last layer alone (16-bit floats)."""
    changed = bytearray(content)
    for position in range(len(content) - 1, 4 * len(content) // 5, -2):
        changed[position] ^= 3
    return bytes(changed)
