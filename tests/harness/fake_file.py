"""A host with one file, and what can be wrong with a download; `FakeServer` serves it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tests.harness.fake_http import Answer, Asked
from tests.harness.fake_hub import header, sha256


@dataclass
class FakeFile:
    """Answers every GET with the file, or with what follows a place in it."""

    body: bytes
    named: str | None = None
    """The etag it is sent with, if not its sha256 in quotes; none where it is empty."""
    ranges: bool = True
    """Whether a part can be asked for."""
    cuts: Iterator[int] = field(default_factory=lambda: iter(()))
    """For each request after how many bytes of the body the connection is closed; then no more."""
    hold: threading.Event | None = None
    hold_after: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    length: bool = True
    getting: threading.Event = field(default_factory=threading.Event)
    """Set once somebody has asked."""

    @property
    def etag(self) -> str:
        """What this version of the file is called."""
        return f'"{sha256(self.body)}"' if self.named is None else self.named

    def __call__(self, asked: Asked) -> Answer:
        self.getting.set()
        answer = Answer(self.body, headers=dict(self.headers) | self._named(), length=self.length)
        start = self._start(asked)
        if start is not None and start >= len(self.body):
            answer = Answer(b"", 416, headers={"Content-Range": f"bytes */{len(self.body)}"})
        elif start is not None:
            end = f"{len(self.body) - 1}/{len(self.body)}"
            headers = {**answer.headers, "Content-Range": f"bytes {start}-{end}"}
            answer = replace(answer, status=206, body=self.body[start:], headers=headers)
        return replace(
            answer, cut=next(self.cuts, None), hold=self.hold, hold_after=self.hold_after
        )

    def _named(self) -> dict[str, str]:
        return {"ETag": self.etag} if self.etag else {}

    def _start(self, asked: Asked) -> int | None:
        """Where the part begins that is asked for, if it is one of this version."""
        part = header(asked, "Range")
        if not self.ranges or part is None or header(asked, "If-Range") not in (None, self.etag):
            return None
        return int(part.removeprefix("bytes=").removesuffix("-"))
