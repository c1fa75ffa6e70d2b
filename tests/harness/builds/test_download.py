"""Downloads, from hosts on loopback: whole, or gone on with, or not there."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.builds import web
from harness.builds.base import NotHere
from harness.builds.download import NoSuchFile, download
from harness.builds.steps import Steps
from harness.builds.web import answer
from tests.harness.fake_file import FakeFile
from tests.harness.fake_http import Answer, FakeServer
from tests.harness.fake_hub import header, sha256

ROOT = Path(__file__).parents[3]
CHUNK = 1 << 16
BODY = random.Random(0).randbytes(5 * CHUNK)
OTHER = random.Random(1).randbytes(5 * CHUNK)


class Places(NamedTuple):
    """Where a download goes, and where its parts are kept."""

    into: Path
    partials: Path

    def kept(self) -> list[str]:
        """What lies in either place but locks."""
        files = [*self.into.parent.iterdir(), *self.partials.glob("*")]
        return sorted(file.suffix or file.name for file in files if file.suffix != ".lock")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "new").mkdir()
    return Places(tmp_path / "new" / "file", tmp_path / "downloads")


@pytest.fixture(autouse=True)
def _nothing_of_the_testers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", os.devnull)


def downloaded(url: str, places: Places, out: io.StringIO | None = None, **more: Any) -> str:
    steps = Steps("b1", out or io.StringIO())
    return download(url, places.into, partials=places.partials, steps=steps, **more)


def refusal(url: str, places: Places, **more: Any) -> NotHere:
    """Why it is not there: in one line, with nothing where the file should be."""
    with pytest.raises(NotHere) as raised:
        downloaded(url, places, **more)
    assert not places.into.exists()
    assert len(raised.value.reason.splitlines()) == 1
    return raised.value


def ranges(server: FakeServer) -> list[str | None]:
    return [header(asked, "Range") for asked in server.asked]


def with_password(url: str) -> str:
    return url.replace("://", "://me:p@secret@") + "?sig=secret"


def test_a_file_comes_whole(places: Places) -> None:
    out = io.StringIO()
    with FakeServer(FakeFile(BODY)) as server:
        url = f"{server.url}/file"
        found = downloaded(url, places, out, sha256=sha256(BODY), size=len(BODY))
        assert found == sha256(BODY)
        assert places.into.read_bytes() == BODY
        assert places.kept() == ["file"]
        assert out.getvalue().startswith(f"b1: download {url}\n")
        assert header(server.asked[0], "Accept-Encoding") == "identity"
    assert places.into.read_bytes() == BODY


def test_nothing_need_be_known_of_it(places: Places) -> None:
    with FakeServer(FakeFile(BODY)) as server:
        assert downloaded(server.url, places) == sha256(BODY)


def test_another_file_in_its_place_is_replaced(places: Places) -> None:
    places.into.write_bytes(OTHER)
    with FakeServer(FakeFile(BODY)) as server:
        assert downloaded(server.url, places, sha256=sha256(BODY)) == sha256(BODY)
    assert places.into.read_bytes() == BODY


def test_an_empty_file(places: Places) -> None:
    with FakeServer(FakeFile(b"")) as server:
        assert downloaded(server.url, places, size=0) == sha256(b"")
    assert places.into.read_bytes() == b""


def test_a_connection_that_breaks_off_is_gone_on_with(places: Places) -> None:
    with FakeServer(FakeFile(BODY, cuts=iter([2 * CHUNK, CHUNK]))) as server:
        assert downloaded(server.url, places, sha256=sha256(BODY)) == sha256(BODY)
        assert ranges(server) == [None, f"bytes={2 * CHUNK}-", f"bytes={3 * CHUNK}-"]
        assert header(server.asked[1], "If-Range") == f'"{sha256(BODY)}"'
    assert places.into.read_bytes() == BODY
    assert places.kept() == ["file"]


def test_a_later_call_goes_on(places: Places) -> None:
    out = io.StringIO()
    with FakeServer(FakeFile(BODY, cuts=iter([2 * CHUNK, 0, 0, 0, 0]))) as server:
        error = refusal(server.url, places, sha256=sha256(BODY))
        assert error.trouble
        assert "broke off 5 times" in error.reason
        assert places.kept() == [".etag", ".part"]
        server.asked.clear()
        assert downloaded(server.url, places, out, sha256=sha256(BODY)) == sha256(BODY)
        assert ranges(server) == [f"bytes={2 * CHUNK}-"]
    assert places.into.read_bytes() == BODY
    assert "going on after 0.1 MB" in out.getvalue()


NOT_GONE_ON_WITH: Mapping[str, tuple[Mapping[str, Any], bool]] = {
    # What the host is then, and whether the part that is there is asked to be gone on with.
    "no_ranges": ({"ranges": False}, True),
    "another_file": ({"body": OTHER}, True),
    "shorter_file": ({"body": OTHER[:CHUNK]}, True),
    "no_etag": ({"named": ""}, False),
    "weak_etag": ({"named": 'W/"1"'}, False),
}


@pytest.mark.parametrize("why", NOT_GONE_ON_WITH)
def test_a_file_that_is_started_again(places: Places, why: str) -> None:
    changed, asked = NOT_GONE_ON_WITH[why]
    first = FakeFile(BODY, cuts=iter([2 * CHUNK]), named=changed.get("named"))
    then = replace(first, cuts=iter(()), **changed)
    hosts = itertools.chain([first], itertools.repeat(then))
    with FakeServer(lambda asked: next(hosts)(asked)) as server:
        assert downloaded(server.url, places) == sha256(then.body)
        assert ranges(server) == [None, f"bytes={2 * CHUNK}-" if asked else None]
    assert places.into.read_bytes() == then.body


WRONG_PARTS: Mapping[str, Answer] = {
    "another_place": Answer(
        BODY[CHUNK:],
        206,
        headers={
            "Content-Range": f"bytes {CHUNK}-{len(BODY) - 1}/{len(BODY)}",
            "ETag": f'"{sha256(BODY)}"',
        },
    ),
    "another_version": Answer(
        BODY[2 * CHUNK :],
        206,
        headers={
            "Content-Range": f"bytes {2 * CHUNK}-{len(BODY) - 1}/{len(BODY)}",
            "ETag": '"other"',
        },
    ),
    "no_place": Answer(BODY[2 * CHUNK :], 206),
    "nothing": Answer(b"", 416),
}


@pytest.mark.parametrize("wrong", WRONG_PARTS)
def test_a_part_that_does_not_fit(places: Places, wrong: str) -> None:
    """It is never put behind what is there."""
    file = FakeFile(BODY, cuts=iter([2 * CHUNK]))
    with FakeServer(
        lambda asked: WRONG_PARTS[wrong] if len(server.asked) == 2 else file(asked)
    ) as server:
        assert downloaded(server.url, places) == sha256(BODY)
        assert ranges(server) == [None, f"bytes={2 * CHUNK}-", None]
    assert places.into.read_bytes() == BODY


def test_a_part_that_nobody_asked_for(places: Places) -> None:
    part = Answer(BODY[CHUNK:], 206, headers={"Content-Range": f"bytes {CHUNK}-9/10"})
    with FakeServer(lambda asked: part) as server:
        assert "HTTP 206" in refusal(server.url, places).reason


def test_a_whole_file_that_was_not_moved_yet(places: Places) -> None:
    """Its process was killed in between; what is sure to be it is not sent again."""
    with FakeServer(FakeFile(BODY)) as server:
        key = hashlib.sha256(server.url.encode()).hexdigest()
        places.partials.mkdir()
        (places.partials / f"{key}.part").write_bytes(BODY)
        assert downloaded(server.url, places, sha256=sha256(BODY)) == sha256(BODY)
        assert server.asked == []
        # Whose sum is not known could be another version's.
        places.into.rename(places.partials / f"{key}.part")
        (places.partials / f"{key}.etag").write_text(f'"{sha256(BODY)}"')
        assert downloaded(server.url, places) == sha256(BODY)
        assert ranges(server) == [f"bytes={len(BODY)}-", None]


@pytest.mark.parametrize("named", ['"half', "", "\xff", '"a"\r\nX: "b"'])
def test_the_name_of_a_version_that_is_none(places: Places, named: str) -> None:
    """A process that was killed has not written all of it, or somebody else has."""
    with FakeServer(FakeFile(BODY)) as server:
        key = hashlib.sha256(server.url.encode()).hexdigest()
        places.partials.mkdir()
        (places.partials / f"{key}.part").write_bytes(OTHER[:CHUNK])
        (places.partials / f"{key}.etag").write_text(named, encoding="latin-1")
        assert downloaded(server.url, places) == sha256(BODY)
        assert ranges(server) == [None]


def test_a_wrong_sum(places: Places) -> None:
    with FakeServer(FakeFile(OTHER)) as server:
        error = refusal(server.url, places, sha256=sha256(BODY))
    assert f"has sha256 {sha256(OTHER)}, not {sha256(BODY)}" in error.reason
    assert places.kept() == []


@pytest.mark.parametrize("size", [len(BODY) - 1, len(BODY) + 1])
def test_a_wrong_size(places: Places, size: int) -> None:
    with FakeServer(FakeFile(BODY)) as server:
        error = refusal(server.url, places, size=size)
        assert f"has {len(BODY)} bytes, not {size}" in error.reason
        assert len(server.asked) == 1
    assert places.kept() == []


def test_a_host_that_does_not_say_how_much_comes(places: Places) -> None:
    """Its end may be that of the connection, unless something tells how much there must be."""
    with FakeServer(FakeFile(BODY, length=False)) as server:
        assert "does not say how large" in refusal(server.url, places).reason
        assert "more than" in refusal(server.url, places, size=len(BODY) - 1).reason
        assert places.kept() == []
        assert downloaded(server.url, places, size=len(BODY)) == sha256(BODY)
        assert downloaded(f"{server.url}/2", places, sha256=sha256(BODY)) == sha256(BODY)
    places.into.unlink()
    with FakeServer(FakeFile(BODY, length=False, cuts=iter([CHUNK]))) as server:
        assert downloaded(server.url, places, size=len(BODY)) == sha256(BODY)
        assert ranges(server) == [None, f"bytes={CHUNK}-"]


def test_a_host_that_does_not_stop(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too much is not waited for, and does not fill the disk."""
    monkeypatch.setattr(web, "READ_SECONDS", 10.0)
    hold = threading.Event()
    with FakeServer(FakeFile(BODY, length=False, hold=hold, hold_after=2 * CHUNK)) as server:
        error = refusal(server.url, places, size=CHUNK)
        hold.set()
    assert error.reason == f"more than {CHUNK} bytes came"
    assert places.kept() == []


def test_a_host_that_takes_gz_for_a_way_to_send(places: Places) -> None:
    """What comes is the archive, as its sum says; it is not unpacked on the way."""
    body = b"\x1f\x8b no gzip at all" + BODY
    with FakeServer(FakeFile(body, headers={"Content-Encoding": "x-gzip"})) as server:
        assert downloaded(server.url, places, sha256=sha256(body)) == sha256(body)
    with FakeServer(FakeFile(body, headers={"Content-Encoding": "gzip"})) as server:
        assert downloaded(server.url, places, sha256=sha256(body)) == sha256(body)


@pytest.mark.parametrize("status", [404, 410])
def test_no_such_file(places: Places, status: int) -> None:
    with FakeServer(lambda asked: Answer(b"", status)) as server:
        error = refusal(with_password(f"{server.url}/a"), places)
    assert isinstance(error, NoSuchFile)
    assert not error.trouble
    assert error.reason == f"no such file: {server.url}/a"


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_another_status(places: Places, status: int) -> None:
    with FakeServer(lambda asked: Answer(b"secret", status)) as server:
        error = refusal(with_password(server.url), places)
        assert len(server.asked) == 1
    assert error.trouble
    assert f"HTTP {status}" in error.reason
    assert "secret" not in error.reason


def test_a_status_does_not_cost_what_is_there(places: Places) -> None:
    file = FakeFile(BODY, cuts=iter([CHUNK]))
    with FakeServer(
        lambda asked: Answer(b"", 503) if len(server.asked) == 2 else file(asked)
    ) as server:
        assert "HTTP 503" in refusal(server.url, places).reason
        assert downloaded(server.url, places) == sha256(BODY)
        assert ranges(server)[2] == f"bytes={CHUNK}-"


def test_nobody_listens(places: Places, dead: str) -> None:
    error = refusal(with_password(dead), places)
    assert error.trouble
    assert error.reason == f"{dead} cannot be fetched: Connection refused"


def test_a_name_that_nobody_knows(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*given: object, **more: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    error = refusal(with_password("http://nobody.invalid/file"), places)
    assert error.trouble
    assert error.reason.endswith(
        "//nobody.invalid/file cannot be fetched: Name or service not known"
    )


def test_a_host_without_tls(places: Places) -> None:
    with FakeServer(FakeFile(BODY)) as server:
        error = refusal(with_password(server.url.replace("http:", "https:")), places)
    assert error.trouble
    assert "SSL" in error.reason
    assert "secret" not in error.reason


@pytest.mark.parametrize("after", [None, 0, CHUNK], ids=["answer", "body", "rest"])
def test_a_host_that_is_silent(
    places: Places, after: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "READ_SECONDS", 0.2)
    hold = threading.Event()
    with FakeServer(FakeFile(BODY, hold=hold, hold_after=after)) as server:
        error = refusal(server.url, places)
        assert len(server.asked) == 1
        hold.set()
    assert error.trouble
    assert "no answer within 0.2 s" in error.reason


def test_a_host_that_hangs_up(places: Places) -> None:
    with FakeServer(lambda asked: Answer(drop=True)) as server:
        error = refusal(server.url, places)
    assert error.trouble
    assert "closed connection without response" in error.reason


@pytest.mark.parametrize(
    "url", ["nothing", "http://", "ftp://host/file", "http://[host/x", "http://host:port/x"]
)
def test_an_address_that_is_none(places: Places, url: str) -> None:
    assert "makes no sense" in refusal(url, places).reason


def test_a_proxy_is_used(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that nobody can look up: only the proxy can have answered."""
    with FakeServer(FakeFile(BODY)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert downloaded("http://nobody.invalid/file", places) == sha256(BODY)
        assert [asked.path for asked in proxy.asked] == ["http://nobody.invalid/file"]


def test_a_proxy_that_is_down(places: Places, dead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", with_password(dead))
    error = refusal("http://nobody.invalid/file", places)
    assert "the proxy: Connection refused" in error.reason
    assert "secret" not in error.reason


def sent_on(to: str) -> Answer:
    return Answer(b"", 302, headers={"Location": to})


def test_who_asks_is_not_told_to_another_host(places: Places) -> None:
    with FakeServer(FakeFile(BODY, cuts=iter([CHUNK]))) as storage:
        with FakeServer(lambda asked: sent_on(f"{storage.url}/?sig=1")) as server:
            downloaded(server.url, places)
            with answer(server.url, {"Authorization": "Bearer secret"}):
                assert header(server.asked[-1], "Authorization") == "Bearer secret"
                assert header(storage.asked[-1], "Authorization") is None
            storage.asked.pop()
        assert ranges(storage) == [None, f"bytes={CHUNK}-"]
    assert places.into.read_bytes() == BODY


def test_a_login_in_netrc_is_for_the_first_host(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with (
        FakeServer(FakeFile(BODY)) as storage,
        FakeServer(lambda asked: sent_on(storage.url)) as server,
    ):
        downloaded(server.url, places)
        assert (header(server.asked[0], "Authorization") or "").startswith("Basic ")
        assert header(storage.asked[0], "Authorization") is None
        # Nor does it stand in for what is sent.
        with answer(server.url, {"Authorization": "Bearer secret"}):
            assert header(server.asked[1], "Authorization") == "Bearer secret"


def test_sent_on_without_end(places: Places) -> None:
    with FakeServer(lambda asked: sent_on("/again")) as server:
        assert "sent on without end" in refusal(server.url, places).reason


def test_a_full_disk(places: Places) -> None:
    """Nothing of it is left, so that there is room, and the next call has it."""
    with FakeServer(FakeFile(BODY)) as server:
        key = hashlib.sha256(server.url.encode()).hexdigest()
        places.partials.mkdir()
        (places.partials / f"{key}.part").symlink_to("/dev/full")
        error = refusal(server.url, places)
        assert error.trouble
        assert error.reason == f"it cannot be kept in {places.partials}: No space left on device"
        assert "XDG_CACHE_HOME" in error.hint
        assert places.kept() == []
        assert downloaded(server.url, places) == sha256(BODY)


def test_no_place_for_parts(places: Places) -> None:
    places.partials.touch()
    with FakeServer(FakeFile(BODY)) as server:
        assert refusal(server.url, places).trouble
        assert server.asked == []


PROGRAM = """
import resource, sys
from pathlib import Path
from harness.builds.base import NotHere
from harness.builds.download import download
from harness.builds.steps import Steps

class Told(Steps):
    def progress(self, done, total):
        print(done, flush=True)

url, into, partials, limit = sys.argv[1:]
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    print(download(url, Path(into), partials=Path(partials), steps=Told("b1")))
except NotHere as error:
    print(error.reason, error.hint, error.trouble)
"""


def program(url: str, places: Places, limit: int | None = None) -> subprocess.Popen[str]:
    """A process of its own, which says how far it is, and what comes of it."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, *map(str, places), str(limit or "")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def last_line(process: subprocess.Popen[str]) -> str:
    with process:
        try:
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert "Traceback" not in err
    return out.splitlines()[-1]


def test_a_disk_that_fills_up_in_the_middle(places: Places) -> None:
    with FakeServer(FakeFile(BODY)) as server:
        line = last_line(program(server.url, places, limit=2 * CHUNK + 1))
        assert line.startswith(f"it cannot be kept in {places.partials}: File too large")
        assert line.endswith("XDG_CACHE_HOME names another place True")
        assert places.kept() == []
        assert last_line(program(server.url, places)) == sha256(BODY)


def test_killed_and_called_again(places: Places) -> None:
    hold = threading.Event()
    file = FakeFile(BODY, hold=hold, hold_after=2 * CHUNK)
    with FakeServer(file) as server:
        killed = program(server.url, places)
        assert killed.stdout is not None
        assert killed.stdout.readline() == f"{CHUNK}\n"
        assert killed.stdout.readline() == f"{2 * CHUNK}\n"
        killed.kill()
        killed.communicate(timeout=30)
        assert places.kept() == [".etag", ".part"]
        hold.set()
        assert last_line(program(server.url, places)) == sha256(BODY)
        assert ranges(server) == [None, f"bytes={2 * CHUNK}-"]
    assert places.into.read_bytes() == BODY
    assert places.kept() == ["file"]


class Heard(io.StringIO):
    """Tells when somebody says that it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Event()

    def write(self, text: str) -> int:
        if "waiting for it" in text:
            self.waits.set()
        return super().write(text)


def test_two_at_once(places: Places) -> None:
    """The second one waits, and says so."""
    other = places._replace(into=places.into.with_name("other"))
    hold = threading.Event()
    file = FakeFile(BODY, hold=hold)
    heard = Heard()
    with FakeServer(file) as server, ThreadPoolExecutor(2) as pool:
        first = pool.submit(downloaded, server.url, places)
        assert file.getting.wait(30)
        second = pool.submit(downloaded, server.url, other, heard)
        assert heard.waits.wait(30)
        assert len(server.asked) == 1
        hold.set()
        assert first.result(30) == second.result(30) == sha256(BODY)
    assert places.into.read_bytes() == other.into.read_bytes() == BODY


def test_a_second_process_goes_on_where_the_first_was_killed(places: Places) -> None:
    """Its lock ends with it."""
    hold = threading.Event()
    file = FakeFile(BODY, hold=hold, hold_after=CHUNK)
    heard = Heard()
    with FakeServer(file) as server, ThreadPoolExecutor(1) as pool:
        killed = program(server.url, places)
        assert killed.stdout is not None
        assert killed.stdout.readline() == f"{CHUNK}\n"
        second = pool.submit(downloaded, server.url, places, heard)
        assert heard.waits.wait(30)
        killed.kill()
        killed.communicate(timeout=30)
        hold.set()
        assert second.result(30) == sha256(BODY)
        assert ranges(server) == [None, f"bytes={CHUNK}-"]
