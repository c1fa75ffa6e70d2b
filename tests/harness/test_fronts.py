"""A front without a fault is a llama-server that does all right, and passes for one."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from harness.bench import Bench
from harness.builds.build import Build
from harness.client import Options
from harness.errors import Disconnected
from harness.ledger import Verdict
from harness.server.capabilities import probe
from harness.server.guard import Guard
from harness.server.process import LlamaServer, Program, ServerExited
from tests.harness.fronts import wire
from tests.harness.fronts.faults import FAULTS, NONE, Turn
from tests.harness.fronts.fleet import Answer, CommandLine
from tests.harness.fronts.trial import run, write_front
from tests.harness.teeth import FAMILIES, probes
from tests.harness.teeth.table import Family, Row

PROMPT = "the same text for everybody " * 10
A_ALONE = Options(lora=[(0, 1.0), (1, 0.0)])
B_ALONE = Options(lora=[(0, 0.0), (1, 1.0)])
NONE_IN_FORCE = Options(lora=[(0, 0.0), (1, 0.0)])

StartFront = Callable[[str], LlamaServer]


@pytest.fixture
def start_front(
    real_server: Path,
    llama_build: Build,
    llama_bench: Bench,
    llama_guard: Guard,
    tmp_path: Path,
) -> Iterator[StartFront]:
    """Starts a front with a fault, one slot and adapters A (server-wide at 0.5) and B (at 0)."""
    with ExitStack() as stack:

        def start(fault: str) -> LlamaServer:
            front = write_front(tmp_path, real=real_server, fault=fault)
            config = llama_bench.config({"A": 0.5, "B": 0.0}, parallel=1, cache_ram=64)
            program = Program(front, llama_build.capabilities)
            log_path = tmp_path / "server.log"
            server = LlamaServer(program, config, guard=llama_guard, log_path=log_path)
            return stack.enter_context(server)

        yield start


@pytest.mark.parametrize(
    ("family", "configuration"),
    [
        pytest.param(family, configuration, id=f"{family.name}-{configuration}")
        for family in FAMILIES
        for configuration in ("np1-kvu-completion", "np4-kvu-chat")
        if family.run_in(Row(NONE, configuration, {}))
    ],
)
def test_family_holds(
    real_server: Path, tmp_path: Path, family: Family, configuration: str
) -> None:
    front = write_front(tmp_path, real=real_server, fault=NONE)
    if family is probes.FAMILY and configuration.startswith("np4"):
        # With several slots a front looks where its real server does.
        only = family.functions.keys() - {probes.TITLE, probes.EARLY}
    else:
        only = family.run_in(Row(NONE, configuration, {}))
    trial = run([front], family.name, configuration, only=sorted(only))
    assert {name.partition("-")[0] for name in trial.outcomes} == only, trial.output
    assert {verdict for verdict, _ in trial.outcomes.values()} == {Verdict.HOLDS}, trial.output
    assert trial.returncode == pytest.ExitCode.OK


def test_is_what_the_real_server_is(real_server: Path, llama_build: Build, tmp_path: Path) -> None:
    front = write_front(tmp_path, real=real_server, fault=NONE)
    assert probe(front) == llama_build.capabilities


def test_tells_and_sets_server_wide_scales(start_front: StartFront) -> None:
    client = start_front(NONE).client
    assert [adapter.scale for adapter in client.lora_adapters()] == [0.5, 0.0]
    client.set_lora_adapters([(1, 1.0)])
    assert [adapter.scale for adapter in client.lora_adapters()] == [0.0, 1.0]


def test_serves_under_the_setting_in_force(start_front: StartFront) -> None:
    client = start_front(NONE).client
    a, b = (client.completion(PROMPT, options).tokens for options in (A_ALONE, B_ALONE))
    half = client.completion(PROMPT).tokens
    assert len({a, b, half}) == 3
    assert client.completion(PROMPT, Options(lora=[])).tokens[0].id == half[0].id
    client.set_lora_adapters([(1, 1.0)])
    assert client.completion(PROMPT).tokens[0].id == b[0].id


def test_reuses_under_one_setting_only(start_front: StartFront) -> None:
    client = start_front(NONE).client
    orders = (A_ALONE, B_ALONE, NONE_IN_FORCE, A_ALONE, B_ALONE)
    replies = [client.completion(PROMPT, options) for options in orders]
    all_but_one = replies[0].prompt_tokens - 1
    assert [r.timings.cache_n for r in replies] == [0, 0, 0, all_but_one, all_but_one]


def test_leaves_cold_runs_alone(start_front: StartFront) -> None:
    client = start_front("drops_lora").client
    cold_a = Options(lora=A_ALONE.lora, cache_prompt=False)
    cold = [client.completion(PROMPT, cold_a).tokens[0].id for _ in range(3)]
    warm = client.completion(PROMPT, A_ALONE).tokens[0].id
    assert len(set(cold)) == 1
    assert warm != cold[0]


def test_listens_on_one_port(start_front: StartFront) -> None:
    server = start_front(NONE)
    server.client.completion(PROMPT, A_ALONE)
    family = _family(server)
    listening = [
        connection
        for process in family
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(family) == 3  # the front and two settings
    assert len(listening) == 1


def test_dies_with_a_real_server(start_front: StartFront) -> None:
    server = start_front(NONE)
    [_, real] = _family(server)
    real.kill()
    cause = server.cause(Disconnected("the real server was killed"))
    assert isinstance(cause, ServerExited)
    assert cause.returncode == -signal.SIGKILL


def test_leaves_nothing_behind(start_front: StartFront, tmp_path: Path) -> None:
    server = start_front(NONE)
    server.client.completion(PROMPT, A_ALONE)
    family = _family(server)
    server.stop()
    assert not [process for process in family if process.is_running()]
    assert not list(tmp_path.glob("*.sock"))


def test_command_line_is_taken_apart() -> None:
    adapters = "/a.gguf:0.5,/b.gguf:0.0"
    where = ["--host", "127.0.0.1", "--port", "0"]
    line = CommandLine.parse([*where, "--lora-scaled", adapters, "--parallel", "4"])
    assert line == CommandLine(("--parallel", "4"), ("/a.gguf", "/b.gguf"), (0.5, 0.0))
    assert line.parallel == 4
    assert line.prompt_cache
    assert not line.replaced("--cache-ram", "0").prompt_cache
    assert line.replaced("--cache-ram", "0").without("--cache-ram") == line
    assert (line.value("--parallel"), line.value("--no-such")) == ("4", "")
    under = ["--parallel", "4", "--host", "x.sock", "--lora-scaled", "/a.gguf:0.0,/b.gguf:1.0"]
    assert line.under((0.0, 1.0), "x.sock") == under
    assert CommandLine.parse(["--parallel", "1"]).under((), "x.sock")[-2:] == ["--host", "x.sock"]


@pytest.mark.parametrize(
    ("fault", "cached", "read", "usage"),
    [("claims_more", 9, 1, 9), ("claims_less", 0, 10, 0), ("miscounts", 5, 6, 4)],
)
def test_faulty_numbers(fault: str, cached: int, read: int, usage: int) -> None:
    reply = {
        "timings": {"cache_n": 4, "prompt_n": 6},
        "usage": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}},
    }
    shown = FAULTS[fault].reply(Answer.of(reply), Turn(1, 1, None, None)).json()
    assert shown["timings"] == {"cache_n": cached, "prompt_n": read}
    assert shown["usage"]["prompt_tokens_details"]["cached_tokens"] == usage


STREAM = Answer(
    200,
    b'data: {"content": "a"}\n\n'
    b'data: {"content": "", "timings": {"cache_n": 4, "prompt_n": 6}}\n\n'
    b"data: [DONE]\n\n",
    "text/event-stream",
)


def test_faulty_streams() -> None:
    turn = Turn(1, 1, None, None)
    claimed = FAULTS["streams_claim_less"].reply(STREAM, turn)
    assert claimed.json()["timings"] == {"cache_n": 0, "prompt_n": 10}
    assert claimed.content.startswith(b'data: {"content": "a"}\n\n')
    assert claimed.content.endswith(b"data: [DONE]\n\n")
    rewritten = FAULTS["rewrites_text"].reply(STREAM, turn)
    assert rewritten.content.count(b"zzzz") == 2
    whole = Answer.of({"timings": {"cache_n": 4, "prompt_n": 6}})
    assert FAULTS["streams_claim_less"].reply(whole, turn) == whole


def test_faulty_requests() -> None:
    request = {"lora": [{"id": 0, "scale": 0.5}, {"id": 1, "scale": 0.0}], "id_slot": 3}
    turn = Turn(2, 4, None, None)
    shown = {name: fault.request(request, turn) for name, fault in FAULTS.items()}
    assert shown["drops_lora"] == {"id_slot": 3}
    assert [adapter["scale"] for adapter in shown["changes_scale"]["lora"]] == [1.0, 0.0]
    assert shown["strips_id_slot"] == {"lora": request["lora"]}
    assert shown["swaps_slots"]["id_slot"] == 1


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n"


def test_chunks_are_put_together() -> None:
    message = wire.read(io.BytesIO(CHUNKED + b"0\r\n\r\n"))
    assert (message.start, message.content) == (("HTTP/1.1", "200", "OK"), b"abcde")


@pytest.mark.parametrize(
    "data",
    [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", CHUNKED],
)
def test_a_message_that_breaks_off_is_no_answer(data: bytes) -> None:
    with pytest.raises(ConnectionError):
        wire.read(io.BytesIO(data))


def _family(server: LlamaServer) -> list[psutil.Process]:
    """The front, and the real servers behind it."""
    front = psutil.Process(server.pid)
    return [front, *front.children(recursive=True)]
