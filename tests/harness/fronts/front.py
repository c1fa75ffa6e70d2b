"""A program that passes for a llama-server towards the harness.

As long as it has no fault it behaves as a llama-server would that does all right:

- it keeps the states of different adapter settings apart: each setting has a real llama-server of
  its own behind it, with those scales server-wide and no `lora` field in what is sent on;
- with one slot it looks into its prompt cache for every request, however good the slot: a real one
  does where no slot is ever similar enough;
- it leaves states where they are: `--cache-reuse` does nothing;
- it knows of every slot file what it is, and restores none that is not (`slot_files.py`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from tests.harness.fronts import wire
from tests.harness.fronts.faults import FAULTS, Fault, Turn
from tests.harness.fronts.fleet import Answer, Body, CommandLine, Fleet, RealServer, Scales

_SLOT_ACTION = re.compile(r"/slots/(\d+)\?action=(save|restore)")
_GENERATING = ("/completion", "/v1/completions", "/v1/chat/completions")


def main(*, real: str, fault: str) -> NoReturn:
    """The whole program; `real` is the llama-server that does the work."""
    arguments = sys.argv[1:]
    # Python's own answer to SIGTERM would leave the real servers to whoever killed us.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    # Sockets and slot files go to a place of this front's own, wherever the harness stands.
    place = Path(sys.argv[0]).with_name(f"front.{os.urandom(4).hex()}")
    place.mkdir(mode=0o700)
    os.chdir(place)
    fleet = Fleet(real, _command_line(arguments, FAULTS[fault]))
    try:
        fleet.start()  # nobody is to find us before a real server is ready
        _serve(Front(fleet, FAULTS[fault]))
    finally:
        fleet.end()


def _command_line(arguments: Sequence[str], fault: Fault) -> CommandLine:
    line = CommandLine.parse(arguments)
    if not fault.moves_states:
        line = line.without("--cache-reuse")
    if line.prompt_cache and line.parallel == 1 and not fault.one_server:
        line = line.replaced("--slot-prompt-similarity", "1")
    return fault.command_line(line)


class Front:
    """Answers requests with the help of a fleet, and with one fault."""

    def __init__(self, fleet: Fleet, fault: Fault) -> None:
        self._fleet = fleet
        self._fault = fault
        self._scales = fleet.line.scales
        """Server-wide, as of now."""
        self._turn = Turn(number=0, slots=fleet.line.parallel, previous=None, last=None)
        self._files = fault.slot_files(fleet)
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, content: bytes) -> Answer:
        """The answer to any request. Raises what the connection to a real server raises."""
        if path in _GENERATING:
            with self._lock:
                return self._generate(path, json.loads(content))
        if path == "/lora-adapters" and not self._fault.one_server:
            return self._adapters(json.loads(content) if method == "POST" else None)
        if (action := _SLOT_ACTION.fullmatch(path)) and self._keeps_files:
            return self._slot_action(int(action[1]), action[2], json.loads(content))
        embeds = path == "/embedding" and self._fault.embeds_aside
        server = self._fleet.aside if embeds else self._fleet.first
        answer = server.request(method, path, content or None)
        return self._fault.other(self._fleet, path, answer)

    @property
    def _keeps_files(self) -> bool:
        """Whether slot files are ours to look after."""
        return bool(self._fleet.line.value("--slot-save-path")) and not self._fault.one_server

    def _slot_action(self, slot: int, action: str, request: Body) -> Answer:
        with self._lock:
            if action == "save":
                return self._files.save(slot, request["filename"])
            return self._files.restore(slot, request["filename"])

    def _generate(self, path: str, request: Body) -> Answer:
        if not request["cache_prompt"] and self._fleet.line.prompt_cache:
            request = self._fault.uncached(request)
        if not request["cache_prompt"]:
            server, request = self._route(request)
            return server.post(path, request)
        fault, turn = self._fault, replace(self._turn, number=self._turn.number + 1)
        server, request = self._route(fault.request(request, turn))
        fault.before(server, turn)
        answer = server.post(path, request)
        reply = answer.json()
        self._turn = replace(turn, previous=None if answer.streamed else reply, last=server)
        slot = 0 if turn.slots == 1 else request.get("id_slot", reply.get("id_slot"))
        if slot is not None and self._keeps_files:
            self._files.answered(slot, server)
        fault.after(self._fleet, turn)
        return fault.reply(answer, turn)

    def _route(self, request: Body) -> tuple[RealServer, Body]:
        """The real server for a request, and what it is to be sent."""
        if self._fault.one_server:
            return self._fleet.first, request
        lora = request.get("lora")
        scales = self._stated(lora) if lora else self._scales
        rest = {name: value for name, value in request.items() if name != "lora"}
        return self._fleet.server(scales), rest

    def _adapters(self, stated: list[Body] | None) -> Answer:
        """`/lora-adapters`: sets the server-wide scales, or tells them."""
        if stated is not None:
            self._scales = self._stated(stated)
            return Answer.of({"success": True})
        loaded = self._fleet.first.request("GET", "/lora-adapters").json()
        now = zip(loaded, self._scales, strict=True)
        return Answer.of([{**adapter, "scale": scale} for adapter, scale in now])

    def _stated(self, lora: list[Body]) -> Scales:
        """The scale of every adapter; those that are not listed are not in force."""
        listed = {adapter["id"]: float(adapter["scale"]) for adapter in lora}
        return tuple(listed.get(id, 0.0) for id in range(len(self._scales)))


def _serve(front: Front) -> NoReturn:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(f"listening on http://127.0.0.1:{server.getsockname()[1]}", flush=True)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_answer, args=(front, connection), daemon=True).start()


def _answer(front: Front, connection: socket.socket) -> None:
    """Answer the one request of a connection."""
    with connection, connection.makefile("rb") as stream:
        try:
            request = wire.read(stream)
            method, path, _ = request.start
            answer = front.answer(method, path, request.content)
            start = f"HTTP/1.1 {answer.status} {wire.REASONS.get(answer.status, 'Other')}"
            wire.write(connection, start, {"Content-Type": answer.content_type}, answer.content)
        except OSError as error:
            # The connection is closed without an answer, as by a server that dies.
            print(f"no answer from the real server: {error!r}", file=sys.stderr, flush=True)
