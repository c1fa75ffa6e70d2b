"""A program that passes for a llama-server towards the harness.

As long as it has no fault it behaves as a llama-server would that keeps the states of different
adapter settings apart: each setting has a real llama-server of its own behind it, with those scales
server-wide and the `lora` field taken out of what is sent on.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import tempfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NoReturn

from tests.harness.fronts.faults import FAULTS, Fault, Turn
from tests.harness.fronts.fleet import Answer, Body, CommandLine, Fleet, RealServer, Scales

_PROBES = {"--version", "--help", "--list-devices"}
_GENERATING = ("/completion", "/v1/completions", "/v1/chat/completions")


def main(*, real: str, fault: str) -> NoReturn:
    """The whole program; `real` is the llama-server that does the work."""
    arguments = sys.argv[1:]
    if _PROBES.intersection(arguments):
        os.execv(real, [real, *arguments])
    # Python's own answer to SIGTERM would leave the real servers to whoever killed us.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    # Sockets and slot files go to a place of this front's own, wherever the harness stands.
    os.chdir(tempfile.mkdtemp(prefix="front.", dir=Path(sys.argv[0]).parent))
    fleet = Fleet(real, FAULTS[fault].command_line(CommandLine.parse(arguments)))
    try:
        fleet.start()  # nobody is to find us before a real server is ready
        _serve(Front(fleet, FAULTS[fault]))
    finally:
        fleet.end()
    raise AssertionError("a front serves until it is told to end")


class Front:
    """Answers requests with the help of a fleet, and with one fault."""

    def __init__(self, fleet: Fleet, fault: Fault) -> None:
        self._fleet = fleet
        self._fault = fault
        self._scales = fleet.line.scales
        """Server-wide, as of now."""
        self._turn = Turn(number=0, slots=fleet.line.parallel, previous=None, last=None)
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, content: bytes) -> Answer:
        """The answer to any request. Raises what the connection to a real server raises."""
        if path in _GENERATING:
            with self._lock:
                return self._generate(path, json.loads(content))
        if path == "/lora-adapters" and not self._fault.one_server:
            return self._adapters(json.loads(content) if method == "POST" else None)
        return self._fleet.first.request(method, path, content or None)

    def _generate(self, path: str, request: Body) -> Answer:
        if not request["cache_prompt"]:
            server, request = self._route(request)
            return server.post(path, request)
        fault, turn = self._fault, replace(self._turn, number=self._turn.number + 1)
        server, request = self._route(fault.request(request, turn))
        fault.before(server, turn)
        answer = server.post(path, request)
        self._turn = replace(turn, previous=answer.json(), last=server)
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


def _serve(front: Front) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            self.close_connection = True
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                answer = front.answer(self.command, self.path, content)
            except (OSError, http.client.HTTPException) as error:
                print(f"no answer from the real server: {error!r}", file=sys.stderr, flush=True)
                return  # closes the connection, as a server does that dies
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.content)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: object) -> None:
            """The real servers' own lines are the log."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        print(f"listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()
