"""A loopback HTTP server that answers from a script and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    """What to answer: `body` is JSON unless it is bytes. `hold` keeps the client waiting."""

    body: Any = None
    status: int = 200
    hold: threading.Event | None = None
    drop: bool = False
    """Close the connection instead of answering."""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    """Close the connection after so many bytes of the body."""
    hold_after: int | None = None
    """Where `hold` sets in: after so many bytes of the body, not before the answer."""
    length: bool = True
    """Say how long the body is; without, the end of the connection is its end."""


@dataclass
class FakeServer:
    """Context manager around the server; `answer` decides on each request."""

    answer: Callable[[Asked], Answer]
    asked: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake._handle(self)

            def do_HEAD(self) -> None:
                fake._handle(self)

            def do_POST(self) -> None:
                fake._handle(self)

            def log_message(self, format: str, *args: object) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        raw = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        asked = Asked(
            handler.command, handler.path, dict(handler.headers), json.loads(raw) if raw else None
        )
        self.asked.append(asked)
        answer = self.answer(asked)
        if answer.hold is not None and answer.hold_after is None:
            answer.hold.wait(30)
        if answer.drop:
            handler.close_connection = True
            return
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        handler.send_response(answer.status)
        length = {"Content-Length": str(len(body))} if answer.length else {}
        for name, value in {**length, **answer.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if asked.method != "HEAD":
            _send(handler, body[: answer.cut], answer)


def _send(handler: BaseHTTPRequestHandler, body: bytes, answer: Answer) -> None:
    with suppress(ConnectionError):  # a client may be killed meanwhile
        if answer.hold is not None and answer.hold_after is not None:
            handler.wfile.write(body[: answer.hold_after])
            answer.hold.wait(30)
            body = body[answer.hold_after :]
        handler.wfile.write(body)
