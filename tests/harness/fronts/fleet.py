"""The real llama-servers behind a front: one for each adapter setting, each on a UNIX socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.harness.fronts import wire

_POLL_SECONDS = 0.002

Body = dict[str, Any]
"""A JSON object, of a request or of a reply."""

Scales = tuple[float, ...]
"""One scale for each loaded adapter: what tells the servers of a fleet apart."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The arguments the harness gave, taken apart where a front has a say."""

    words: tuple[str, ...]
    """Without host, port and adapters."""
    adapters: tuple[str, ...]
    scales: Scales

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> CommandLine:
        """Reads the arguments of a llama-server as the harness writes them."""
        words = list(arguments)
        _take(words, "--host")
        _take(words, "--port")
        pairs = [entry.rpartition(":") for entry in _take(words, "--lora-scaled").split(",")]
        loaded = [(path, float(scale)) for path, _, scale in pairs if path]
        paths, scales = tuple(path for path, _ in loaded), tuple(scale for _, scale in loaded)
        return cls(tuple(words), paths, scales)

    @property
    def parallel(self) -> int:
        """How many slots each server has."""
        return int(self.words[self.words.index("--parallel") + 1])

    @property
    def prompt_cache(self) -> bool:
        """Whether the server has one."""
        return self.value("--cache-ram") != "0"

    def value(self, flag: str) -> str:
        """What was given for a flag; empty where it was not."""
        return _take(list(self.words), flag)

    def replaced(self, flag: str, value: str) -> CommandLine:
        """With another value for a flag, given or not."""
        words = list(self.words)
        _take(words, flag)
        return replace(self, words=(*words, flag, value))

    def without(self, flag: str) -> CommandLine:
        """Without a flag and its value."""
        words = list(self.words)
        _take(words, flag)
        return replace(self, words=tuple(words))

    def under(self, scales: Scales, host: str) -> list[str]:
        """The arguments of a server that has these scales server-wide."""
        loaded = zip(self.adapters, scales, strict=True)
        pairs = ",".join(f"{path}:{scale}" for path, scale in loaded)
        return [*self.words, "--host", host, *(["--lora-scaled", pairs] if pairs else [])]


def _take(words: list[str], flag: str) -> str:
    """Removes a flag, and gives the value it had; empty where it was not given."""
    if flag not in words:
        return ""
    position = words.index(flag)
    value = words[position + 1]
    del words[position : position + 2]
    return value


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP reply."""

    status: int
    content: bytes
    content_type: str = "application/json"

    @classmethod
    def of(cls, data: object, status: int = 200) -> Answer:
        """A reply with JSON."""
        return cls(status, json.dumps(data).encode())

    @classmethod
    def refusal(cls, message: str, status: int = 500) -> Answer:
        """An error as llama-server words it."""
        error = {"code": status, "message": message, "type": "server_error"}
        return cls.of({"error": error}, status=status)

    @property
    def streamed(self) -> bool:
        """Whether it is a stream of events."""
        return self.content_type.startswith("text/event-stream")

    def json(self) -> Any:
        """The data in it; of a stream, in the last event that says how it went."""
        if not self.streamed:
            return json.loads(self.content)
        return [event for event in map(_event, self._lines()) if "timings" in event][-1]

    def edited(self, change: Callable[[Body], Body]) -> Answer:
        """With other data; of a stream, in each event."""
        if not self.streamed:
            return replace(self, content=json.dumps(change(self.json())).encode())
        events = [(line, _event(line)) for line in self._lines()]
        lines = [_line(change(event)) if event else line for line, event in events]
        return replace(self, content=b"\n".join(lines))

    def _lines(self) -> list[bytes]:
        return self.content.split(b"\n")


def _event(line: bytes) -> Body:
    """The data in a line of a stream; empty where there is none."""
    if not line.startswith(b"data: {"):
        return {}
    event: Body = json.loads(line.removeprefix(b"data: "))
    return event


def _line(event: Body) -> bytes:
    return b"data: " + json.dumps(event).encode()


class RealServer:
    """One real llama-server, started by the constructor.

    `died` is called with the exit status when the process ends without being told to.
    """

    def __init__(self, command: Sequence[str], path: str, died: Callable[[int], None]) -> None:
        self._path = path
        self._died = died
        self._told_to_end = False
        self._process = subprocess.Popen(command)
        threading.Thread(target=self._watch, daemon=True).start()

    def wait_until_ready(self) -> None:
        """Returns when `/health` says so. Should the process die meanwhile, we end with it."""
        while not self._ready():
            time.sleep(_POLL_SECONDS)

    def request(self, method: str, path: str, content: bytes | None = None) -> Answer:
        """Sends one request on a connection of its own, with the answer as it came."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._path)
            headers = {"Host": "localhost", "Content-Type": "application/json"}
            wire.write(connection, f"{method} {path} HTTP/1.1", headers, content or b"")
            with connection.makefile("rb") as stream:
                reply = wire.read(stream)
        kind = reply.headers.get("content-type", "application/json")
        return Answer(int(reply.start[1]), reply.content, kind)

    def post(self, path: str, body: Body) -> Answer:
        """`request` with JSON."""
        return self.request("POST", path, json.dumps(body).encode())

    def slot(self, number: int, action: str, filename: str = "") -> Answer:
        """Saves, restores or erases a slot; the front must have given `--slot-save-path`."""
        answer = self.post(f"/slots/{number}?action={action}", {"filename": filename})
        assert answer.status == 200, answer.content
        return answer

    def kill(self) -> None:
        """As a crash does: without a chance to say anything."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Ends the process. It may be at it already: what ends us is sent to all of the group."""
        self._told_to_end = True
        self._process.kill()
        self._process.wait()
        Path(self._path).unlink(missing_ok=True)

    def _ready(self) -> bool:
        try:
            return self.request("GET", "/health").status == 200
        except OSError:
            return False  # it does not listen yet

    def _watch(self) -> None:
        status = self._process.wait()
        if not self._told_to_end:
            self._died(status)


class Fleet:
    """Real servers by the scales they have, started when first asked for."""

    def __init__(self, program: str, line: CommandLine) -> None:
        self._program = program
        self.line = line
        self._servers: dict[tuple[str, Scales], RealServer] = {}

    def start(self) -> None:
        """Starts the first server."""
        self.server(self.line.scales)

    @property
    def first(self) -> RealServer:
        """The server with the scales of the command line."""
        return self.server(self.line.scales)

    @property
    def aside(self) -> RealServer:
        """One more of the same scales, for what is to leave the others alone."""
        return self._started("aside", self.line.scales)

    def server(self, scales: Scales) -> RealServer:
        """The server with these scales."""
        return self._started("", scales)

    def _started(self, purpose: str, scales: Scales) -> RealServer:
        key = purpose, scales
        if key not in self._servers:
            # Relative to the working directory: a UNIX socket's path may have 107 characters.
            path = f"{os.getpid()}.{len(self._servers)}.sock"
            command = [self._program, *self.line.under(scales, path)]
            self._servers[key] = RealServer(command, path, self._died)
            self._servers[key].wait_until_ready()
        return self._servers[key]

    def scales_of(self, server: RealServer) -> Scales:
        """The scales that a server has."""
        return next(scales for (_, scales), known in self._servers.items() if known is server)

    def running(self) -> tuple[RealServer, ...]:
        """Every server started so far."""
        return tuple(self._servers.values())

    def end(self) -> None:
        """Ends all of them."""
        for server in self.running():
            server.end()

    def _died(self, status: int) -> None:
        """One has died: so do the others and we, in the same way, for the harness to see."""
        self.end()
        if status < 0:
            os.kill(os.getpid(), signal.Signals(-status))
        os._exit(status)
