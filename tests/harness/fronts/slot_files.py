"""Slot files as a front keeps them: a note beside each says what it is, and whether it still is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.harness.fronts.fleet import Answer, Body, CommandLine, Fleet, RealServer, Scales

_NOTE = ".note"
_FITS = ("--model", "--cache-type-k", "--cache-type-v")
"""Flags that decide whether a state fits a server."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the last request left in a slot: a file of our own, and the server it is from."""

    file: Path
    reply: Body
    server: RealServer


class SlotFiles:
    """Saves what a slot was left with, and restores what is known to be whole and to fit.

    Faulty ones override what they do wrong.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._held: dict[int, Held] = {}

    def answered(self, slot: int, server: RealServer) -> None:
        """A state was left in this slot: it is kept before anything can happen to it.

        Without a prompt cache it is the only one of this slot, whatever was there under other
        adapters.
        """
        if not self.fleet.line.prompt_cache:
            for other in self.fleet.running():
                if other is not server:
                    other.slot(slot, "erase")
        file = self._directory / f".held-{slot}"
        reply = server.slot(slot, "save", file.name)
        self._held[slot] = Held(file, reply.json(), server)

    def save(self, slot: int, name: str) -> Answer:
        """`action=save`."""
        held = self._held.get(slot)
        if held is None:
            return Answer.refusal("there is nothing in this slot", 400)
        (self._directory / name).write_bytes(held.file.read_bytes())
        self._take_note(name, held)
        return Answer.of({**held.reply, "filename": name})

    def restore(self, slot: int, name: str) -> Answer:
        """`action=restore`."""
        why = self.trouble(name)
        if why is not None:
            return self.refuse(slot, why)
        server = self.server(tuple(self._note(name)["scales"]))
        answer = server.slot(slot, "restore", name)
        self.answered(slot, server)
        return self.restored(slot, server, answer)

    def trouble(self, name: str) -> str | None:
        """Why a file cannot be restored here."""
        path = self._directory / name
        if not path.exists() or not path.with_name(name + _NOTE).exists():
            return "there is no such file"
        if self.is_changed(name):
            return "the file is not as it was written"
        note = self._note(name)
        if note["fits"] != self._fits(self.fleet.line) or note["tokens"] > self._room:
            return "the file is of another server"
        return None

    def is_changed(self, name: str) -> bool:
        """Whether a file is not as it was saved."""
        changed: bool = self._note(name)["sha256"] != _sha256(self._directory / name)
        return changed

    def refuse(self, slot: int, why: str) -> Answer:
        """The answer where a file cannot be restored."""
        return Answer.refusal(why, 400)

    def server(self, scales: Scales) -> RealServer:
        """The server that a file computed under these scales is restored to."""
        return self.fleet.server(scales)

    def restored(self, slot: int, server: RealServer, answer: Answer) -> Answer:
        """A file was restored into a slot of a server, with this answer."""
        return answer

    @property
    def _directory(self) -> Path:
        return Path(self.fleet.line.value("--slot-save-path"))

    @property
    def _room(self) -> int:
        """How many tokens a slot has room for."""
        line = self.fleet.line
        shared = "--kv-unified" in line.words
        return int(line.value("--ctx-size")) // (1 if shared else line.parallel)

    def _fits(self, line: CommandLine) -> list[str]:
        return [line.value(flag) for flag in _FITS]

    def _take_note(self, name: str, held: Held) -> None:
        note = {
            "sha256": _sha256(self._directory / name),
            "scales": self.fleet.scales_of(held.server),
            "fits": self._fits(self.fleet.line),
            "tokens": held.reply["n_saved"],
        }
        (self._directory / (name + _NOTE)).write_text(json.dumps(note))

    def _note(self, name: str) -> Body:
        note: Body = json.loads((self._directory / (name + _NOTE)).read_text())
        return note


def _sha256(path: Path) -> str:
    import hashlib  # takes long to import, and few fronts have slot files

    return hashlib.sha256(path.read_bytes()).hexdigest()
