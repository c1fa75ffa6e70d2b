"""Who listens at a URL, and what may be known of him."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import psutil
import pytest

from harness.errors import UsageProblem
from harness.models.spec import Model
from harness.server.listener import Listener, listener
from tests.harness.by_hand import ByHand
from tests.harness.server.conftest import WriteProgram
from tests.harness.server.processes import Identity

LISTEN = """
import socket, sys
own = socket.create_server(("127.0.0.1", 0))
print(f"listening on http://127.0.0.1:{own.getsockname()[1]}", flush=True)
while True:
    own.accept()
"""


def refused(url: str) -> str:
    with pytest.raises(UsageProblem) as problem:
        listener(url)
    assert "\n" not in str(problem.value)
    assert f"--llama-url={url}: " in str(problem.value)
    return str(problem.value)


def test_what_a_server_was_started_with(by_hand: ByHand, real_server: Path, model: Model) -> None:
    """Relative paths are those of where it was started, whatever name the address is given by."""
    words = ("-m", model.file.path.name, "--port", "0", "-np", "2")
    started = by_hand(str(real_server), *words, cwd=model.file.path.parent)
    found = listener(started.url)
    assert found == Listener(
        url=started.url,
        pid=started.pid,
        started=psutil.Process(started.pid).create_time(),
        program=real_server.resolve(),
        words=words,
        directory=model.file.path.parent,
    )
    assert listener(started.url.replace("127.0.0.1", "localhost") + "/") == found


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://127.0.0.1:8080", "that is no http://HOST:PORT"),
        ("http://127.0.0.1", "that is no http://HOST:PORT"),
        ("http://127.0.0.1:x", "that is no http://HOST:PORT"),
        ("http://127.0.0.1:99999", "that is no http://HOST:PORT"),
        ("http://me@127.0.0.1:8080", "that is no http://HOST:PORT"),
        ("http://127.0.0.1:8080/v1", "that is no http://HOST:PORT"),
        ("127.0.0.1:8080", "that is no http://HOST:PORT"),
        ("", "that is no http://HOST:PORT"),
        ("http://192.0.2.1:8080", "192.0.2.1 is no loopback address"),
        ("http://0.0.0.0:8080", "0.0.0.0 is no loopback address"),
        ("http://example.org:8080", "example.org is no loopback address"),
    ],
)
def test_no_address_of_this_machine(url: str, words: str) -> None:
    assert words in refused(url)


def test_nobody(dead: str) -> None:
    assert "nobody listens there (start a llama-server first)" in refused(dead)


def test_another_address_with_the_same_port(by_hand: ByHand, write_program: WriteProgram) -> None:
    """127.0.0.2 is this machine too, and another place."""
    started = by_hand(str(write_program(LISTEN)), "--model", "x")
    assert listener(started.url).pid == started.pid
    assert "nobody listens" in refused(started.url.replace("127.0.0.1", "127.0.0.2"))


def test_every_address(by_hand: ByHand, write_program: WriteProgram) -> None:
    program = write_program(LISTEN.replace('("127.0.0.1", 0)', '("0.0.0.0", 0)'))
    started = by_hand(str(program), "--model", "x")
    found = listener(started.url.replace("127.0.0.1", "localhost"))
    assert (found.pid, found.url) == (started.pid, started.url)


def test_a_process_of_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose sockets are seen, and not that they are his."""
    with socket.create_server(("127.0.0.1", 0)) as own:
        url = f"http://127.0.0.1:{own.getsockname()[1]}"
        seen = psutil.net_connections(kind="tcp")
        hidden = [connection._replace(pid=None) for connection in seen]
        monkeypatch.setattr(psutil, "net_connections", lambda kind: hidden)
        assert "cannot be looked at (start the server as the same user" in refused(url)


@pytest.mark.parametrize("hidden", ["exe", "cmdline", "cwd"])
def test_a_process_that_may_not_be_looked_at(
    by_hand: ByHand, write_program: WriteProgram, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    started = by_hand(str(write_program(LISTEN)), "--model", "x")

    def denied(process: psutil.Process) -> str:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, hidden, denied)
    assert "cannot be looked at" in refused(started.url)


def test_what_is_no_llama_server_is_not_run(by_hand: ByHand, write_program: WriteProgram) -> None:
    started = by_hand(str(write_program(LISTEN)), "--data", "x")
    assert "listens there, which was started without --model" in refused(started.url)


def test_flags_that_come_by_the_environment(by_hand: ByHand, write_program: WriteProgram) -> None:
    program = str(write_program(LISTEN))
    unseen = {"LLAMA_ARG_N_PARALLEL": "2", "LLAMA_ARG_CTX_SIZE": "64", "LLAMA_CACHE": "x"}
    started = by_hand(program, "--model", "x", environ=unseen)
    told = refused(started.url)
    assert "that server has LLAMA_ARG_CTX_SIZE, LLAMA_ARG_N_PARALLEL in its environment" in told


def test_an_environment_that_may_not_be_read(
    by_hand: ByHand, write_program: WriteProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = by_hand(str(write_program(LISTEN)), "--model", "x")

    def denied(process: psutil.Process) -> dict[str, str]:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "environ", denied)
    assert listener(started.url).pid == started.pid


@pytest.mark.parametrize("changed", ["program", "library"])
def test_a_server_that_was_built_again(
    by_hand: ByHand, real_server: Path, model: Model, tmp_path: Path, changed: str
) -> None:
    """What would be examined, and start cold runs, is not what runs."""
    home, real = tmp_path / "build", real_server.resolve()
    home.mkdir()
    libraries = [path for path in real.parent.glob("libllama.so*") if path.is_file()]
    if changed == "library" and not libraries:
        pytest.skip("this build is of one piece")
    for file in real.parent.iterdir():
        own = file in (real, *libraries)
        shutil.copy(file, home) if own else (home / file.name).symlink_to(file)
    started = by_hand(str(home / real.name), "-m", str(model.file.path), "--port", "0")
    assert listener(started.url).program == home / real.name
    for file in [real] if changed == "program" else libraries:
        again = tmp_path / "again"
        shutil.copy(file, again)
        again.replace(home / file.name)  # as a linker does it
    assert "is another one since that server was started" in refused(started.url)
    assert Identity.of(started.pid).lives()
