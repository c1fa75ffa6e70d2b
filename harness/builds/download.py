"""Downloading a file: gone on with where it broke off, checked, and never half."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from harness.builds.base import ELSEWHERE, NotHere
from harness.builds.steps import Steps
from harness.builds.web import answer, host, shown, timed_out
from harness.files import sha256_of
from harness.locks import alone

_TRIES = 5
"""How often a connection may break off before it is left to the next run."""
_CHUNK_BYTES = 1 << 16
"""More than Python keeps back: what has come is there when the process is killed."""
_STRONG_ETAG = re.compile(r'"[^"\s]*"')
"""By others no part can be asked for: they are of files that are only alike."""
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


class NoSuchFile(NotHere):
    """The host answers, and has no such file."""


class _BrokeOff(Exception):
    """A part of the file came, or a part that is of no use: another request may bring the rest."""


@dataclass(frozen=True, slots=True)
class _Partial:
    """What has come of a file so far, and what the host calls the version that it is a part of."""

    path: Path

    @property
    def _etag(self) -> Path:
        return self.path.with_suffix(".etag")

    def known(self) -> tuple[int, str]:
        """How many bytes are there, and of which version; 0 where that is not known for sure."""
        try:
            # A name that was half written when its process was killed has no quote at its end.
            etag = self._etag.read_text(encoding="latin-1")
            size = self.path.stat().st_size
        except FileNotFoundError:
            return 0, ""
        return (size, etag) if size and _STRONG_ETAG.fullmatch(etag) else (0, "")

    def begin(self, etag: str) -> None:
        """Starts again. Old bytes never stand beside a new name, whenever the process ends."""
        self.path.write_bytes(b"")
        self._etag.write_text(etag, encoding="latin-1")

    def forget(self) -> None:
        """Removes it."""
        self.path.unlink(missing_ok=True)
        self._etag.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file as it is asked for, and what it must be, as far as that is known."""

    url: str
    sha256: str | None
    size: int | None

    def __str__(self) -> str:
        return shown(self.url)

    @property
    def key(self) -> str:
        """A name for files beside it."""
        return hashlib.sha256(self.url.encode()).hexdigest()


def download(
    url: str,
    into: Path,
    *,
    partials: Path,
    steps: Steps,
    sha256: str | None = None,
    size: int | None = None,
) -> str:
    """Downloads into a file, which is there whole or not at all, and returns its sha256.

    `partials` is a directory of the same file system, where what has come so far is kept if the
    process is killed or the connection fails: a later call goes on from there. One process at a
    time downloads from an address. Raises `NoSuchFile` or another `NotHere`.
    """
    file = _File(url=url, sha256=sha256, size=size)
    partial = _Partial(partials / f"{file.key}.part")
    waiting = f"another process is downloading {file}; waiting for it"
    lock = alone(partials / f"{file.key}.lock", lambda: steps.say(waiting))
    with _disk(partials), lock:
        try:
            with steps.step(f"download {file}"):
                found = _whole(file, partial, steps)
            partial.path.replace(into)
            partial.forget()
        except OSError:
            # A disk that is full stays so while this lies there.
            partial.forget()
            raise
        return found


@contextmanager
def _disk(partials: Path) -> Iterator[None]:
    """Says in one line what is wrong with the disk."""
    try:
        yield
    except OSError as error:
        raise NotHere(
            f"it cannot be kept in {partials}: {error.strerror or type(error).__name__}",
            hint=ELSEWHERE,
            trouble=True,
        ) from None
    except NotImplementedError:
        raise NotHere(
            f"it cannot be kept in {partials}: a file system without locks",
            hint=ELSEWHERE,
            trouble=True,
        ) from None


def _whole(file: _File, partial: _Partial, steps: Steps) -> str:
    """Gets all of it to where the partial is; its sha256, which is the right one."""
    if file.sha256 and partial.path.exists() and sha256_of(partial.path) == file.sha256:
        return file.sha256  # a process was killed just before it would have moved it
    _fetch(file, partial, steps)
    found = sha256_of(partial.path)
    if found != (file.sha256 or found):
        partial.forget()
        raise NotHere(
            f"{file}: what came has sha256 {found}, not {file.sha256}",
            hint="nothing of it was kept",
            trouble=True,
        )
    return found


def _fetch(file: _File, partial: _Partial, steps: Steps) -> None:
    for left in reversed(range(_TRIES)):
        try:
            _ask(file, partial, steps)
        except _BrokeOff as broke_off:
            steps.say(f"{broke_off}{'; asking again' if left else ''}")
        else:
            return
    raise NotHere(
        f"the connection to {host(file.url)} broke off {_TRIES} times",
        hint="the next run goes on from there",
        trouble=True,
    )


def _ask(file: _File, partial: _Partial, steps: Steps) -> None:
    """One request, for what is missing."""
    there, etag = partial.known()
    # Sums are of what is on the host, and a range of something packed would be of no use.
    headers = {"Accept-Encoding": "identity"}
    if there:
        headers |= {"Range": f"bytes={there}-", "If-Range": etag}
    with answer(file.url, headers) as response:
        # Hosts that take .gz for a way to send a file rather than for the file; it stays packed.
        response.raw.headers.pop("Content-Encoding", None)
        start, total = _place(file, response, there, etag, partial)
        if start == 0:
            partial.begin(response.headers.get("ETag", ""))
        else:
            steps.say(f"going on after {start / 1e6:.1f} MB")
        _append(response, partial, start, total, steps)


def _place(
    file: _File, response: requests.Response, there: int, etag: str, partial: _Partial
) -> tuple[int, int | None]:
    """Where in the file the body begins, and the size of the whole."""
    status = response.status_code
    if status in (404, 410):
        raise NoSuchFile(f"no such file: {file}")
    start, total = 0, _length(response)
    if there and status in (206, 416):
        start, total = there, _total(response, there, etag)
        if total is None:
            partial.forget()
            raise _BrokeOff(f"{host(file.url)} has nothing that fits what came before")
    elif status != 200:
        raise NotHere(f"{host(file.url)} answers HTTP {status} for {file}", trouble=True)
    _check_size(file, response, total, partial)
    return start, file.size if total is None else total


def _total(response: requests.Response, there: int, etag: str) -> int | None:
    """The size of the whole, where a part of it came that follows what we have."""
    match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    same = response.status_code == 206 and response.headers.get("ETag") == etag
    return int(match[2]) if match and same and int(match[1]) == there else None


def _check_size(
    file: _File, response: requests.Response, total: int | None, partial: _Partial
) -> None:
    if file.size is not None and total not in (None, file.size):
        partial.forget()
        raise NotHere(f"{file} has {total} bytes, not {file.size}", trouble=True)
    # Then nothing could tell its end from a connection that broke off.
    endless = total is None and response.headers.get("Transfer-Encoding") != "chunked"
    if endless and file.size is None and file.sha256 is None:
        raise NotHere(f"{host(file.url)} does not say how large {file} is", trouble=True)


def _append(
    response: requests.Response, partial: _Partial, done: int, total: int | None, steps: Steps
) -> None:
    try:
        with partial.path.open("ab") as out:
            for chunk in response.iter_content(_CHUNK_BYTES):
                out.write(chunk)
                done += len(chunk)
                steps.progress(done, total)
                if total is not None and done > total:
                    break
    except requests.RequestException as error:
        if timed_out(error):
            raise
        raise _BrokeOff(f"the connection broke off after {done / 1e6:.1f} MB") from None
    if total is not None and done < total:
        raise _BrokeOff(f"the connection broke off after {done / 1e6:.1f} MB")
    if total is not None and done > total:
        partial.forget()
        raise NotHere(f"more than {total} bytes came", trouble=True)


def _length(response: requests.Response) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None
