"""The script that fetches models, at hubs on loopback: the library reads HF_* at import."""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from harness.models.published import PUBLISHED
from tests.harness.fake_http import Answer, FakeServer
from tests.harness.fake_hub import COMMIT, NAME, REPO, FakeHub, header, sha256

ROOT = Path(__file__).parents[3]
PATH = f"/{REPO}/resolve/{COMMIT}/{NAME}"
BODY, OTHER = b"a model " * 1000, b"no model" * 1000
MIB = 2**20
LINE = "fetch_model.py: "
IMPATIENT = "import time; time.sleep = lambda seconds: None"
"""For the library, which waits a second before it asks again."""


def start(home: Path, endpoint: str, *names: str, **changed: str) -> subprocess.Popen[str]:
    """The script, asked for names, or else for the file of the hub.

    `changed` has options of the script (`sha256="..."`), environment variables (`HF_TOKEN="..."`)
    and what Python does first (`first="..."`). Nothing of the tester's own gets in: no proxy, token
    or cache.
    """
    options = {"repo": REPO, "revision": COMMIT, "file": NAME, "sha256": sha256(BODY)}
    options |= {name: changed[name] for name in changed if name in options}
    arguments = names or [f"--{name}={value}" for name, value in options.items() if value]
    environ = {"PATH": os.environ["PATH"], "HF_HOME": str(home), "HF_ENDPOINT": endpoint}
    environ |= {name: value for name, value in changed.items() if name.isupper()}
    environ["PYTHONPATH"] = str(ROOT)  # this harness, not another that is installed
    if "first" in changed:
        site = home.with_name(f"{home.name}-site")
        site.mkdir()
        (site / "sitecustomize.py").write_text(changed["first"])
        environ["PYTHONPATH"] += f":{site}"
    return subprocess.Popen(
        [sys.executable, "scripts/fetch_model.py", *arguments],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, list[str], list[str]]:
    """Its exit code, and the lines on stdout and stderr."""
    with process:
        try:
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert "Traceback" not in err
    return process.returncode, out.splitlines(), err.splitlines()


def fetched(home: Path, endpoint: str, **changed: str) -> Path:
    """Where it says that the file is."""
    code, out, err = end(start(home, endpoint, **changed))
    assert code == 0, err
    (path,) = out
    return Path(path)


def refusal(home: Path, endpoint: str, *names: str, **changed: str) -> str:
    """Why it cannot be had: all in one line of ours, which may follow lines of the library."""
    code, out, err = end(start(home, endpoint, *names, **changed))
    assert (code, out) == (4, [])
    (line,) = [line for line in err if line.startswith(LINE)]
    assert line == err[-1]
    return line


def kept(home: Path) -> list[str]:
    """What lies in the cache but its locks and the mark that tells backups to leave it out."""
    files = [p for p in home.rglob("*") if p.is_symlink() or p.is_file()]
    return [p.name for p in files if p.suffix not in (".lock", ".TAG")]


def methods(server: FakeServer) -> list[str]:
    return [asked.method for asked in server.asked]


KEPT_IN = pytest.mark.parametrize("git", [False, True], ids=["large_file_storage", "git"])
"""The hub calls a file by its sha256 or by what Git calls it, and the cache does as well."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_a_file_is_fetched_once(home: Path) -> None:
    with FakeServer(FakeHub(BODY)) as server:
        path = fetched(home, server.url)
        assert path.read_bytes() == BODY
        assert methods(server).count("GET") == 1
        # Nobody is told who we are, or asked for anything else.
        assert {asked.path for asked in server.asked} == {PATH}
        server.asked.clear()
        # Nor is anything written: it may be a cache of somebody else's.
        shutil.rmtree(home / "hub" / ".locks")
        (home / "hub" / ".locks").touch()
        assert fetched(home, server.url) == path
        assert server.asked == []


@pytest.mark.parametrize(
    ("size", "cut", "again"),
    [(3 * MIB, 2 * MIB, None), (12 * MIB, 11 * MIB, f"bytes={10 * MIB}-")],
    ids=["small", "large"],
)
def test_a_download_that_breaks_off_goes_on(
    home: Path, size: int, cut: int, again: str | None
) -> None:
    """Where 10 MiB are there, only what follows is sent again."""
    body = random.Random(0).randbytes(size)
    with FakeServer(FakeHub(body, cuts=iter([cut]))) as server:
        path = fetched(home, server.url, sha256=sha256(body), first=IMPATIENT)
        assert path.read_bytes() == body
        ranges = [header(asked, "Range") for asked in server.asked if asked.method == "GET"]
        assert ranges == [None, again]


NOT_THE_FILE: Mapping[str, tuple[dict[str, Any], str]] = {
    "other_bytes": ({"sends": OTHER}, f"has sha256 {sha256(OTHER)}, not {sha256(BODY)}"),
    "breaks_off": ({"cuts": itertools.repeat(100)}, "peer closed connection"),
    "too_short": ({"sends": BODY[:100]}, f"should be of size {len(BODY)} but has size 100"),
}


@pytest.mark.parametrize("wrong", NOT_THE_FILE)
def test_nothing_is_kept_of_what_is_not_the_file(home: Path, wrong: str) -> None:
    fault, words = NOT_THE_FILE[wrong]
    (home.parent / "beside").mkdir()
    roundabout = home.parent / "beside" / ".." / home.name  # as people write it
    with FakeServer(FakeHub(BODY, **fault)) as server:
        assert words in refusal(roundabout, server.url, first=IMPATIENT)
        assert "GET" in methods(server)
    assert kept(home) == []


REFUSED: Mapping[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "file": ({}, {"file": "none.gguf"}, f"has no {REPO}/none.gguf at"),
    "revision": ({}, {"revision": "0" * 40}, f"has no {REPO}/{NAME} at 00000000"),
    "repo": ({}, {"repo": "someone/else"}, "has no someone/else, or does not show it"),
    "private": ({"token": "right"}, {}, f"has no {REPO}, or does not show it (HF_TOKEN"),
    "token": ({"token": "right"}, {"HF_TOKEN": "wrong"}, "Invalid credentials"),
    "gated": (
        {"always": {"HEAD": Answer(status=401, headers={"X-Error-Code": "GatedRepo"})}},
        {},
        f"{REPO}/{NAME} at c0ffee00 is gated on",
    ),
    "unavailable": ({"always": {"HEAD": Answer(status=503)}}, {}, "503 Service Unavailable"),
    "portal": (
        {"always": dict.fromkeys(("HEAD", "GET"), Answer(b"<html>Log in</html>"))},
        {},
        "what answers there is no hub",
    ),
    "etag": ({"named": "../../../own.gguf"}, {}, "what answers there is no hub"),
    "name": ({}, {"repo": "too/many/parts"}, "too/many/parts"),
    "sha256": ({}, {"sha256": sha256(OTHER)}, f"{sha256(BODY)}"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_the_hub_does_not_have(home: Path, why: str) -> None:
    """Said before anything is downloaded."""
    fault, changed, words = REFUSED[why]
    with FakeServer(FakeHub(BODY, **fault)) as server:
        line = refusal(home, server.url, **changed)
        assert words in line
        assert server.url in line
        assert "GET" not in methods(server)
    assert kept(home) == []


def test_a_size_other_than_the_known_one(home: Path) -> None:
    """Names are fetched by the same way, and nothing comes where the size says it all."""
    file = PUBLISHED["stories15m-moe-q8"].model
    with FakeServer(FakeHub(BODY, file.repo, file.revision, file.name)) as server:
        line = refusal(home, server.url, "stories15m-moe-q8")
        assert f"has {len(BODY)} bytes on {server.url}, not {file.size}" in line
        assert methods(server) == ["HEAD"]


def assert_helpful(line: str, endpoint: str) -> None:
    """Names what was tried, where, and what else there is."""
    for words in (f"{REPO}/{NAME} at c0ffee00", endpoint, "--llama-model=generated"):
        assert words in line


def test_who_asks_is_not_shown(home: Path, dead: str) -> None:
    """An address may have a name and a password in it; logs are read by others."""
    assert "secret" not in refusal(home, with_password(dead))
    assert "secret" not in refusal(home, with_password("http://127.0.0.1:port"))
    with FakeServer(FakeHub(BODY, always={"HEAD": Answer(status=503)})) as server:
        line = refusal(home, with_password(server.url))
        assert "503" in line
        assert "secret" not in line
    with FakeServer(FakeHub(BODY)) as server:
        code, _, err = end(start(home, with_password(server.url)))
        assert (code, [line for line in err if "secret" in line]) == (0, [])


def with_password(url: str) -> str:
    return url.replace("://", "://me:p@secret@")


def test_a_hub_that_is_down(home: Path, dead: str) -> None:
    line = refusal(home, dead)
    assert_helpful(line, dead)
    assert "refused" in line


SHORT = "import harness.models.download as d; d._ANSWER_SECONDS = 1.0\n"


def test_a_hub_that_does_not_answer(home: Path) -> None:
    hub = FakeHub(BODY, holds={"HEAD": threading.Event()})
    with FakeServer(hub) as server:
        line = refusal(home, server.url, first=SHORT)
        hub.release()
    assert_helpful(line, server.url)
    assert "timed out" in line


def test_a_storage_that_does_not_go_on(home: Path) -> None:
    """It is asked several times, for as long as HF_HUB_DOWNLOAD_TIMEOUT each."""
    first = (
        f"{IMPATIENT}\nfrom huggingface_hub import constants\n"
        "constants.HF_HUB_DOWNLOAD_TIMEOUT = 0.1\n"
    )
    hub = FakeHub(BODY, holds={"GET": threading.Event()})
    with FakeServer(hub) as server:
        line = refusal(home, server.url, first=first)
        hub.release()
    assert_helpful(line, server.url)
    assert "timed out" in line
    assert kept(home) == []


def test_a_hub_that_goes_down_after_its_first_answer(home: Path) -> None:
    """What the library says in the end is to check one's connection; why comes from further up."""
    hub, down = FakeHub(BODY), Answer(status=503)
    with FakeServer(lambda asked: down if len(server.asked) > 1 else hub(asked)) as server:
        line = refusal(home, server.url, first=IMPATIENT)
    assert_helpful(line, server.url)
    assert "503" in line


def test_a_name_that_is_looked_up_forever(home: Path) -> None:
    """The library's timeout does not begin before a name is looked up."""
    first = (
        "import socket, threading\n"
        "socket.getaddrinfo = lambda *given, **more: threading.Event().wait()\n" + SHORT
    )
    line = refusal(home, "http://hub.invalid", first=first)
    assert_helpful(line, "http://hub.invalid")
    assert "no answer within 1 s" in line


def test_a_proxy_is_used(home: Path) -> None:
    """A name that nobody can look up: only the proxy can have answered."""
    with FakeServer(FakeHub(BODY)) as proxy:
        path = fetched(home, "http://hub.invalid", HTTP_PROXY=proxy.url)
        assert path.read_bytes() == BODY
        assert {asked.path for asked in proxy.asked} == {f"http://hub.invalid{PATH}"}


def test_a_proxy_that_is_down(home: Path, dead: str) -> None:
    with FakeServer(FakeHub(BODY)) as server:
        assert_helpful(refusal(home, server.url, HTTP_PROXY=dead), server.url)
        assert server.asked == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("HF_ENDPOINT", "garbage", "garbage"),
        ("HF_ENDPOINT", "http://hub\tname", "non-printable"),
        ("HF_ENDPOINT", "http://127.0.0.1:port", "http://127.0.0.1:port"),
        ("HF_ENDPOINT", "http://[hub", "http://[hub"),
        ("HF_HUB_ETAG_TIMEOUT", "soon", "soon"),
        ("HTTP_PROXY", "smoke://signals", "smoke"),
        ("ALL_PROXY", "socks5://proxy.invalid:1080", "cannot be fetched"),
        ("HF_OIDC_RESOURCE", "nothing", "OIDC"),
    ],
)
def test_settings_that_make_no_sense(home: Path, name: str, value: str, words: str) -> None:
    with FakeServer(FakeHub(BODY)) as server:
        assert words in refusal(home, server.url, **{name: value})
        assert server.asked == []


@pytest.mark.parametrize("xet", [False, True], ids=["plain", "xet"])
def test_a_token_does_not_go_to_the_storage(home: Path, dead: str, xet: bool) -> None:
    """The library goes there by itself, or is sent there by the hub where xet is on offer."""
    with FakeServer(FakeHub(BODY)) as storage:
        hub = FakeHub(BODY, token="right", storage=storage.url, xet=dead if xet else "")
        with FakeServer(hub) as server:
            assert fetched(home, server.url, HF_TOKEN="right").read_bytes() == BODY
        assert {header(asked, "Authorization") for asked in server.asked} == {"Bearer right"}
        assert methods(storage) == ["GET"]
        assert header(storage.asked[0], "Authorization") is None


def test_a_storage_that_is_down(home: Path, dead: str) -> None:
    with FakeServer(FakeHub(BODY, storage=dead)) as server:
        assert_helpful(refusal(home, server.url, first=IMPATIENT), server.url)
    assert kept(home) == []


def test_a_storage_that_refuses(home: Path) -> None:
    with (
        FakeServer(FakeHub(BODY, always={"GET": Answer(b"<Error/>", 403)})) as storage,
        FakeServer(FakeHub(BODY, storage=storage.url)) as server,
    ):
        assert_helpful(refusal(home, server.url), server.url)
    assert kept(home) == []


def test_xet_is_not_taken(home: Path) -> None:
    with FakeServer(FakeHub(BODY)) as xet, FakeServer(FakeHub(BODY, xet=xet.url)) as server:
        assert fetched(home, server.url).read_bytes() == BODY
        assert methods(server).count("GET") == 1
        assert xet.asked == []


def test_offline(home: Path) -> None:
    with FakeServer(FakeHub(BODY)) as server:
        line = refusal(home, server.url, HF_HUB_OFFLINE="1")
        assert "is not in the cache as it must be, and HF_HUB_OFFLINE is set" in line
        assert "--llama-model=generated" in line
        assert server.asked == []
        path = fetched(home, server.url)
        server.asked.clear()
        assert fetched(home, server.url, HF_HUB_OFFLINE="1") == path
        assert server.asked == []


@pytest.mark.parametrize("damaged", [BODY[:-1], OTHER], ids=["cut_short", "changed"])
@pytest.mark.parametrize("no_links", ["0", "1"])
@KEPT_IN
def test_a_file_that_was_damaged_in_the_cache(
    home: Path, damaged: bytes, no_links: str, git: bool
) -> None:
    with FakeServer(FakeHub(BODY, git=git)) as server:
        path = fetched(home, server.url, HF_HUB_DISABLE_SYMLINKS=no_links)
        path.write_bytes(damaged)
        assert fetched(home, server.url, HF_HUB_DISABLE_SYMLINKS=no_links) == path
        assert path.read_bytes() == BODY


@KEPT_IN
def test_a_file_that_was_damaged_as_one_of_another_commit(home: Path, git: bool) -> None:
    """The cache has the bytes of a file once, whichever commits it is in."""
    later = "decade" + "0" * 34
    one, same = FakeHub(BODY, git=git), FakeHub(BODY, commit=later, git=git)
    with FakeServer(one) as server, FakeServer(same) as other:
        path = fetched(home, server.url)
        path.write_bytes(OTHER)
        assert fetched(home, other.url, revision=later).read_bytes() == BODY
        assert path.read_bytes() == BODY


@pytest.mark.parametrize("called", ["", "git", "0123abcd"], ids=["sha256", "git", "mirror"])
@pytest.mark.parametrize("linked", [True, False])
def test_a_wrong_hash_costs_nobody_a_good_file(home: Path, called: str, linked: bool) -> None:
    """Somebody else's, perhaps, and large: it stays where nothing better comes."""
    hub = FakeHub(BODY, git=called == "git", named="" if called == "git" else called)
    with FakeServer(hub) as server:
        path = fetched(home, server.url)
        blob = path.resolve()
        if not linked:  # as after another commit's has been fetched
            path.unlink()
        line = refusal(home, server.url, sha256=sha256(OTHER))
        assert re.search(rf"has sha256 {sha256(BODY)} (on|in) .*, not {sha256(OTHER)}", line)
        assert blob.read_bytes() == BODY
        assert methods(server).count("GET") == 1


@pytest.mark.parametrize("linked", ["snapshot", "blob"])
def test_what_a_person_has_linked_stays(home: Path, tmp_path: Path, linked: str) -> None:
    own = tmp_path / sha256(BODY)  # even by the name that a blob has
    own.write_bytes(OTHER)
    with FakeServer(FakeHub(BODY)) as server:
        path = fetched(home, server.url)
        link = path if linked == "snapshot" else path.resolve()
        link.unlink()
        link.symlink_to(own)
        assert fetched(home, server.url).read_bytes() == BODY
    assert own.read_bytes() == OTHER


def test_two_at_once(home: Path) -> None:
    """The second one waits, says so, and then has what the first one fetched."""
    hub = FakeHub(BODY, holds={"GET": threading.Event()})
    with FakeServer(hub) as server:
        first = start(home, server.url)
        assert hub.getting.wait(30)
        second = start(home, server.url)
        assert second.stderr is not None
        waiting = f"another process is fetching {REPO}/{NAME} at c0ffee00; waiting for it\n"
        assert second.stderr.readline() == waiting
        hub.release()
        ends = [end(first), end(second)]
        assert [code for code, *_ in ends] == [0, 0]
        assert ends[0][1] == ends[1][1]
        assert methods(server).count("GET") == 1


@KEPT_IN
def test_killed_in_the_middle(home: Path, git: bool) -> None:
    hub = FakeHub(BODY, holds={"GET": threading.Event()}, git=git)
    with FakeServer(hub) as server:
        process = start(home, server.url)
        assert hub.getting.wait(30)
        process.kill()
        end(process)
        hub.release()
        assert [name for name in kept(home) if name.endswith(".incomplete")]
        assert fetched(home, server.url).read_bytes() == BODY
    assert sorted(kept(home)) == sorted([NAME, hub.etag])


def test_what_another_program_is_fetching_stays(home: Path) -> None:
    """It holds the library's lock while it is at it."""
    with FakeServer(FakeHub(BODY)) as server:
        repository = fetched(home, server.url).parents[2]
        blob = repository / "blobs" / sha256(BODY)
        blob.unlink()
        theirs = blob.with_name(f"{blob.name}.0123.incomplete")
        theirs.touch()
        lock = home / "hub" / ".locks" / repository.name / f"{blob.name}.lock"
        with FileLock(lock):
            process = start(home, server.url)
            assert process.stderr is not None
            assert process.stderr.readline().startswith("fetching ")
            assert theirs.exists()
        assert end(process)[0] == 0


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with FakeServer(FakeHub(BODY)) as server:
        line = refusal(tmp_path / "file" / "home", server.url)
    assert "Not a directory" in line
    assert str(tmp_path) in line


def test_a_full_disk(home: Path) -> None:
    first = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({len(BODY) - 1},) * 2)"
    with FakeServer(FakeHub(BODY)) as server:
        line = refusal(home, server.url, first=first)
    assert "File too large" in line
    assert kept(home) == []


def test_without_the_package() -> None:
    """As with another Python than the one it was installed for."""
    done = subprocess.run(
        [sys.executable, "-S", "scripts/fetch_model.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert "pip install -e ." in line


@pytest.mark.parametrize(
    ("names", "changed", "words"),
    [
        ((), {"revision": "main"}, "'main' is no commit (40 hex digits"),
        ((), {"sha256": "ABC"}, "'abc' is no sha256 (64 hex digits)"),
        ((), {"file": ""}, "needs --repo, --revision, --file and --sha256"),
        (("stories15m-moe", "--repo=a/b"), {}, "and no NAME"),
        (("stories",), {}, "'stories'"),
    ],
)
def test_usage(
    home: Path, dead: str, names: tuple[str, ...], changed: dict[str, str], words: str
) -> None:
    assert words in refusal(home, dead, *names, **changed)
