"""A server that somebody else started: read by its command line, used, and left alone."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.client import Client, Options
from harness.errors import (
    NotTestable,
    OtherServerNeeded,
    Refused,
    RequestError,
    ServerEnded,
    ServerError,
    TimedOut,
    UsageProblem,
)
from harness.models.spec import Model
from harness.server.attached import Attached, AttachedServer, attached
from harness.server.config import LoadedAdapter, ServerConfig
from harness.server.listener import Listener, listener
from harness.server.process import Program
from tests.harness.by_hand import ByHand, Started

HERE = Path("/here")


def read(program: Program, *words: str) -> Attached:
    """What is known of a server that was started with these words."""
    found = Listener(
        url="http://127.0.0.1:1",
        pid=1,
        started=0.0,
        program=program.binary,
        words=words,
        directory=HERE,
    )
    return attached(found, program.capabilities)


def test_the_words_of_a_person_are_those_that_are_not_ours(program: Program) -> None:
    words = ("-m", "x.gguf", "-np", "2", "--port", "80", "-lv", "3", "-fa", "on", "--metrics")
    found = read(program, *words)
    assert found.extra_args == ("-np", "2", "-fa", "on", "--metrics")
    assert found.model == HERE / "x.gguf"
    assert found.command == (str(program.binary), *words)


def test_the_last_model_counts(program: Program) -> None:
    assert read(program, "-m", "x.gguf", "--model", "/there/y.gguf").model == Path("/there/y.gguf")


@pytest.mark.parametrize(
    ("words", "adapters"),
    [
        ((), []),
        (("--lora", "a.gguf"), [("a.gguf", 1.0)]),
        (("--lora", "a.gguf,b.gguf"), [("a.gguf", 1.0), ("b.gguf", 1.0)]),
        (("--lora-scaled", "a.gguf:0,b.gguf:0.5"), [("a.gguf", 0.0), ("b.gguf", 0.5)]),
        (("--lora-scaled", "b.gguf:0", "--lora", "a.gguf"), [("b.gguf", 0.0), ("a.gguf", 1.0)]),
    ],
)
def test_adapters_in_the_order_of_their_numbers(
    program: Program, words: tuple[str, ...], adapters: list[tuple[str, float]]
) -> None:
    found = read(program, "-m", "x.gguf", *words).adapters
    assert found == tuple(LoadedAdapter(HERE / path, scale) for path, scale in adapters)


def test_a_secret_is_nobodys_business(program: Program) -> None:
    found = read(program, "-m", "x.gguf", "--hf-token", "geheim", "-np", "2")
    assert found.extra_args == ("-np", "2")
    assert "geheim" not in repr(found)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("-m", "x.gguf", "--no-such", "1"),
            "own command line: this llama-server has no flag --no-",
        ),
        (("x.gguf", "-m"), "own command line: this llama-server has no flag x.gguf"),
        (("-m",), "the server's own command line names no model"),
        (("-m", "x.gguf", "--api-key", "k"), "the server was started with --api-key (servers"),
        (("-m", "x.gguf", "--api-prefix", "/x"), "was started with --api-prefix (the harness asks"),
        (("-m", "x.gguf", "--lora-scaled", "a.gguf"), "--lora-scaled a.gguf has no scale"),
    ],
)
def test_what_the_harness_can_do_nothing_with(
    program: Program, words: tuple[str, ...], told: str
) -> None:
    with pytest.raises(UsageProblem) as problem:
        read(program, *words)
    assert told in str(problem.value)
    assert "\n" not in str(problem.value)


def test_it_survives_being_handed_over(program: Program) -> None:
    found = read(program, "-m", "x.gguf", "--lora-scaled", "a.gguf:0.5", "-np", "2")
    assert Attached.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    ("adapters", "told"),
    [
        ((LoadedAdapter(HERE / "a.gguf", 0.5),), []),
        ((LoadedAdapter(HERE / "x/../a.gguf", 0.5),), []),
        ((), ["needs no adapter, the server was started with adapters a.gguf:0.5"]),
        (
            (LoadedAdapter(HERE / "a.gguf", 1.0),),
            ["needs adapters a.gguf:1, the server was started with adapters a.gguf:0.5"],
        ),
        (
            (LoadedAdapter(Path("/there/a.gguf"), 0.5),),
            ["needs adapters /there/a.gguf:0.5, the server was started with adapters "
             "/here/a.gguf:0.5"],
        ),
    ],
)  # fmt: skip
def test_other_adapters(
    program: Program, adapters: tuple[LoadedAdapter, ...], told: list[str]
) -> None:
    found = read(program, "-m", "x.gguf", "--lora-scaled", "a.gguf:0.5")
    config = ServerConfig(model=HERE / "x.gguf", adapters=adapters)
    assert list(found.unlike(config)) == told


Start = Callable[..., tuple[Started, AttachedServer]]


@pytest.fixture
def start(by_hand: ByHand, program: Program, config: ServerConfig, model: Model) -> Iterator[Start]:
    """Starts a server by hand; what attaches to it beside."""
    made: list[AttachedServer] = []

    def start(*words: str, ready_seconds: float = 30.0) -> tuple[Started, AttachedServer]:
        ours = ("-m", str(model.file.path), "--port", "0", "-t", "1", "-np", "2")
        started = by_hand(str(program.binary), *ours, *words)
        found = attached(listener(started.url), program.capabilities)
        made.append(AttachedServer(found, program, config, ready_seconds=ready_seconds))
        return started, made[-1]

    yield start
    for server in made:
        server.stop()


def test_it_is_used_and_left_alone(start: Start) -> None:
    started, server = start()
    server.start()
    assert server.props.total_slots == 2
    server.client.tokenize("no request for an answer")
    server.check_alive()
    assert server.log.request_slice(server.log.position()).text() == ""
    server.stop()
    server.stop()
    assert started.identity.lives()
    server.start()
    assert server.client.completion("P", Options(n_predict=1)).timings.cache_n == 0
    server.stop()
    with pytest.raises(OtherServerNeeded, match=r"has answered before: start it again") as needed:
        server.start()
    assert needed.value.command == server.command
    assert started.identity.lives()


def test_scales_that_were_changed_since(start: Start, model: Model) -> None:
    _, server = start("--lora-scaled", f"{model.adapters['A'].path}:0.5")
    server.start()
    server.client.set_lora_adapters([(0, 1.0)])
    server.stop()
    with pytest.raises(OtherServerNeeded, match="other adapter scales than it was started with"):
        server.start()


def test_a_server_that_does_not_show_its_slots(start: Start) -> None:
    _, server = start("--no-slots")
    with pytest.raises(NotTestable, match=r"does not say whether .* start it with --slots"):
        server.start()


def test_a_crash_is_one(start: Start) -> None:
    started, server = start()
    server.start()
    server.client.health()
    started.identity.kill()
    with pytest.raises(RequestError) as error:
        server.client.completion("P")
    cause = server.cause(error.value)
    assert isinstance(cause, ServerEnded)
    assert cause.message.endswith(f"(process {started.pid}, which was attached to) has ended")
    assert str(server.command[0]) in cause.detail
    with pytest.raises(ServerEnded):
        server.check_alive()
    server.stop()
    with pytest.raises(NotTestable, match="the attached server has ended: start it again"):
        server.start()


def test_another_process_with_the_same_number(start: Start) -> None:
    started, server = start()
    other = listener(started.url)
    earlier = Listener(
        url=other.url,
        pid=other.pid,
        started=other.started - 60,
        program=other.program,
        words=other.words,
        directory=other.directory,
    )
    found = attached(earlier, server.program.capabilities)
    gone = AttachedServer(found, server.program, server.config, ready_seconds=30)
    with pytest.raises(NotTestable, match="has ended"):
        gone.start()


def test_a_process_that_a_debugger_holds_is_waited_for(start: Start) -> None:
    """As long as a server may take, and then it is said."""
    started, server = start(ready_seconds=0.5)
    os.kill(started.pid, signal.SIGSTOP)
    with pytest.raises(ServerError, match=r"did not answer .*the process is stopped, as by a deb"):
        server.start()
    os.kill(started.pid, signal.SIGCONT)
    server.start()
    os.kill(started.pid, signal.SIGSTOP)
    server.check_alive()
    with pytest.raises(TimedOut) as late:
        server.client.completion("P", timeout=0.2)
    assert "the process is stopped" in str(server.cause(late.value))
    os.kill(started.pid, signal.SIGCONT)


def test_a_server_that_still_loads_is_waited_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, server = start()
    asked = []
    health = Client.health

    def loading(client: Client, *, timeout: float) -> None:
        asked.append(timeout)
        if len(asked) < 3:
            raise Refused(503, "Loading model", request="GET /health")
        health(client, timeout=timeout)

    monkeypatch.setattr(Client, "health", loading)
    server.start()
    assert len(asked) == 3
