"""A Hugging Face hub with one file, and what can be wrong with a hub; `FakeServer` serves it."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from tests.harness.fake_http import Answer, Asked

REPO = "someone/model"
COMMIT = "c0ffee" + "0" * 34
NAME = "model.gguf"


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def git_hash(body: bytes) -> str:
    """As `git hash-object` has it."""
    return hashlib.sha1(f"blob {len(body)}\0".encode() + body, usedforsecurity=False).hexdigest()


def header(asked: Asked, name: str) -> str | None:
    """A request's header, however it was spelled."""
    return {key.lower(): value for key, value in asked.headers.items()}.get(name.lower())


@dataclass
class FakeHub:
    """Answers as the hub does, and as its storage: both serve a file by the same path."""

    body: bytes
    repo: str = REPO
    commit: str = COMMIT
    name: str = NAME
    token: str = ""
    """Who does not send it is told that there is no such repository."""
    sends: bytes | None = None
    """Comes instead of `body`, whose hash and size are announced."""
    cuts: Iterator[int] = field(default_factory=lambda: iter(()))
    """For each GET after how many bytes of the body the connection is closed; then no more."""
    always: Mapping[str, Answer] = field(default_factory=dict)
    """By method, where everything is answered alike."""
    holds: Mapping[str, threading.Event] = field(default_factory=dict)
    """By method, what an answer waits for."""
    storage: str = ""
    """The address of another host, where the file itself is."""
    git: bool = False
    """Whether the file is kept in Git itself, which has another hash of it."""
    named: str = ""
    """What it calls the file instead."""
    xet: str = ""
    """The address that would tell where the file's chunks are."""
    getting: threading.Event = field(default_factory=threading.Event)
    """Set once somebody has asked for the body."""

    @property
    def etag(self) -> str:
        """What the hub calls the file."""
        return self.named or (git_hash(self.body) if self.git else sha256(self.body))

    def release(self) -> None:
        """Lets everything go on that waits."""
        for event in self.holds.values():
            event.set()

    def __call__(self, asked: Asked) -> Answer:
        if asked.method == "GET":
            self.getting.set()
        answer = self.always.get(asked.method) or self._refusal(asked) or self._file(asked)
        return replace(answer, hold=self.holds.get(asked.method))

    def _refusal(self, asked: Asked) -> Answer | None:
        if self.token and header(asked, "Authorization") is None:
            return _refused(401, "RepoNotFound")
        if self.token and header(asked, "Authorization") != f"Bearer {self.token}":
            return _refused(401, message="Invalid credentials in Authorization header")
        # A proxy gets the whole URL.
        where = re.fullmatch(r"/(.+)/resolve/([0-9a-f]{40})/(.+)", urlsplit(asked.path).path)
        repo, commit, name = where.groups() if where else ("", "", "")
        if repo != self.repo:
            return _refused(404, "RepoNotFound")
        if commit != self.commit:
            return _refused(404, "RevisionNotFound")
        return None if name == self.name else _refused(404, "EntryNotFound")

    def _file(self, asked: Asked) -> Answer:
        headers = {"X-Repo-Commit": self.commit, "ETag": f'"{self.etag}"'}
        if self.xet:
            headers["X-Xet-Hash"] = sha256(b"chunks")
            headers["Link"] = f'<{self.xet}/xet-read-token>; rel="xet-auth"'
        if self.storage:
            headers["Location"] = f"{self.storage}{asked.path}"
            headers["X-Linked-Etag"] = headers.pop("ETag")
            headers["X-Linked-Size"] = str(len(self.body))
            return Answer(b"", status=302, headers=headers)
        if asked.method == "HEAD":
            return Answer(self.body, headers=headers)
        body = self.body if self.sends is None else self.sends
        cut = next(self.cuts, None)
        asked_range = header(asked, "Range")
        if asked_range is None:
            return Answer(body, headers=headers, cut=cut)
        start = int(asked_range.removeprefix("bytes=").removesuffix("-"))
        headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        return Answer(body[start:], status=206, headers=headers, cut=cut)


def _refused(status: int, code: str = "", message: str = "") -> Answer:
    said = {"X-Error-Code": code, "X-Error-Message": message}
    return Answer(b"", status, headers={name: value for name, value in said.items() if value})
