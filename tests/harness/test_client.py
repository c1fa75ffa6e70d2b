"""The client: every route of a real server, and a fake one's misbehaviour."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.accounting import violations
from harness.bench import Bench
from harness.client import Client, Options
from harness.errors import Disconnected, Malformed, Refused, TimedOut
from harness.prompts import prose
from harness.replies import OpenAIReply
from harness.server.process import LlamaServer
from tests.harness.fake_http import Answer, Asked, FakeServer

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = prose("client", 120).text
MESSAGES = [{"role": "user", "content": TEXT}]


@pytest.fixture(scope="module")
def server(llama_bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    directory = tmp_path_factory.mktemp("client")
    config = llama_bench.config(
        {"A": 0.0, "B": 0.5}, parallel=2, kv_unified=False, slot_save_path=directory
    )
    with llama_bench.server(config, directory / "server.log") as running:
        yield running


@pytest.fixture
def client(server: LlamaServer) -> Client:
    for slot in server.client.slots():
        server.client.erase_slot(slot.id)
    return server.client


@pytest.mark.parametrize("stream", [False, True])
def test_completion(client: Client, stream: bool) -> None:
    tokens = client.tokenize(TEXT)
    assert len(tokens) == len(TEXT) + 1  # BOS
    reply = client.completion(TEXT, Options(id_slot=1, n_predict=3), stream=stream)
    assert violations(reply, prompt_tokens=len(tokens), id_slot=1) == ()
    assert len(reply.text) == len(reply.tokens) == 3
    assert all(len(token.top) == 10 for token in reply.tokens)
    assert not reply.truncated


def test_a_stream_gives_the_same_answer(client: Client) -> None:
    options = Options(cache_prompt=False)
    whole = client.completion(TEXT, options)
    streamed = client.completion(TEXT, options, stream=True)
    assert (streamed.text, streamed.tokens) == (whole.text, whole.tokens)


def test_a_prompt_of_token_ids(client: Client) -> None:
    tokens = client.tokenize(TEXT)
    assert client.completion(tokens).text == client.completion(TEXT).text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", ["completions", "chat"])
def test_openai_routes(client: Client, route: str, stream: bool) -> None:
    prompt = TEXT if route == "completions" else client.apply_template(MESSAGES)
    tokens = client.tokenize(prompt)

    def ask() -> OpenAIReply:
        if route == "completions":
            return client.completions(TEXT, stream=stream)
        return client.chat(MESSAGES, stream=stream)

    first, second = ask(), ask()
    for reply in (first, second):
        assert violations(reply, prompt_tokens=len(tokens)) == ()
        assert len(reply.text) == len(reply.tokens) == 4
        assert reply.finish_reason == "length"
    assert second.cached_tokens == len(tokens) - 1
    assert second.text == first.text


def test_without_probabilities(client: Client) -> None:
    options = Options(n_probs=0)
    assert client.completion(TEXT, options).tokens == ()
    assert client.completions(TEXT, options).tokens == ()
    assert client.chat(MESSAGES, options).tokens == ()


def test_slots_and_slot_files(client: Client) -> None:
    reply = client.completion(TEXT, Options(id_slot=0))
    held = reply.tokens_cached
    first, second = client.slots()
    assert (first.id, second.id, first.used) == (0, 1, True)
    saved = client.save_slot(0, "slot.bin")
    assert (saved.id_slot, saved.n_tokens) == (0, held)
    assert client.erase_slot(0) == held
    restored = client.restore_slot(1, "slot.bin")
    assert (restored.n_tokens, restored.n_bytes) == (held, saved.n_bytes)
    assert client.completion(TEXT, Options(id_slot=1)).timings.cache_n == len(TEXT)


def test_adapters(client: Client, llama_bench: Bench) -> None:
    scales = [(adapter.id, adapter.scale) for adapter in client.lora_adapters()]
    assert scales == [(0, 0.0), (1, 0.5)]
    client.set_lora_adapters([(0, 1.0), (1, 0.0)])
    assert [adapter.scale for adapter in client.lora_adapters()] == [1.0, 0.0]
    client.set_lora_adapters([(0, 0.0), (1, 0.5)])
    assert Path(client.lora_adapters()[0].path) == llama_bench.model.adapters["A"].path


def test_props_and_metrics(server: LlamaServer, client: Client) -> None:
    props = client.props()
    assert (props.model_alias, props.total_slots) == (server.config.alias, 2)
    assert client.models() == (server.config.alias,)
    before = client.metrics()["prompt_tokens_total"]
    reply = client.completion(TEXT, Options(cache_prompt=False))
    assert client.metrics()["prompt_tokens_total"] - before == reply.timings.prompt_n


@pytest.mark.parametrize(
    ("call", "status", "words"),
    [
        (lambda c: c.restore_slot(0, "missing.bin"), 400, "Unable to restore slot"),
        (lambda c: c.save_slot(0, "../escape"), 400, "Invalid filename"),
        (lambda c: c.completion(TEXT, Options(extra={"lora": 5})), 400, "lora"),
        (lambda c: c.chat([{"content": TEXT}]), 500, "role"),
    ],
)
def test_the_servers_own_words_for_an_error(
    client: Client, call: Callable[[Client], object], status: int, words: str
) -> None:
    with pytest.raises(Refused, match=f"was refused with HTTP {status}") as refused:
        call(client)
    assert refused.value.status == status
    assert words in refused.value.detail
    assert words not in refused.value.message


def fake_client(answer: Callable[[Asked], Answer]) -> tuple[FakeServer, Callable[[], Client]]:
    fake = FakeServer(answer)
    return fake, lambda: Client(fake.url)


def test_no_answer_in_time() -> None:
    release = threading.Event()
    fake, connect = fake_client(lambda _: Answer({}, hold=release))
    with fake:
        with pytest.raises(TimedOut, match="POST /completion did not answer within"):
            connect().completion(TEXT, timeout=0.05)
        release.set()


def test_a_stream_that_stops_in_time_but_not_whole() -> None:
    fake, connect = fake_client(lambda _: Answer(b'data: {"content": "a"}\n\n'))
    with fake, pytest.raises(Malformed, match="tokens_evaluated"):
        connect().completion(TEXT, Options(n_probs=0), stream=True)


def test_a_broken_connection() -> None:
    fake, connect = fake_client(lambda _: Answer(drop=True))
    with fake, pytest.raises(Disconnected):
        connect().completion(TEXT)


def test_nobody_listens() -> None:
    with FakeServer(lambda _: Answer({})) as fake:
        gone = fake.url
    with pytest.raises(Disconnected):
        Client(gone).health()


@pytest.mark.parametrize("body", [b"<html>", b"", [], {"tokens": "text"}, {}])
def test_an_answer_that_is_not_the_api(body: object) -> None:
    fake, connect = fake_client(lambda _: Answer(body))
    with fake, pytest.raises(Malformed):
        connect().tokenize(TEXT)


def test_malformed_never_quotes_what_came() -> None:
    fake, connect = fake_client(lambda _: Answer({"tokens": "my secret prompt"}))
    with fake, pytest.raises(Malformed) as malformed:
        connect().tokenize(TEXT)
    assert "secret" not in str(malformed.value)


@pytest.mark.parametrize(
    "line",
    [
        b'data: {"error": {"message": "out of slots"}}\n\n',
        b'error: {"error": {"message": "out of slots"}}\n\n',
    ],
)
def test_an_error_inside_a_stream(line: bytes) -> None:
    fake, connect = fake_client(lambda _: Answer(line))
    with fake, pytest.raises(Refused, match="out of slots"):
        connect().completion(TEXT, stream=True)


def test_an_error_that_is_not_json() -> None:
    fake, connect = fake_client(lambda _: Answer(b"bad gateway", status=502))
    with fake, pytest.raises(Refused, match=r"HTTP 502\nbad gateway"):
        connect().props()


def test_loading_is_a_refusal() -> None:
    fake, connect = fake_client(
        lambda _: Answer({"error": {"message": "Loading model", "code": 503}}, status=503)
    )
    with fake, pytest.raises(Refused, match="Loading model"):
        connect().health()


def test_what_a_request_says_of_adapters() -> None:
    fake, connect = fake_client(lambda _: Answer({}, status=500))
    with fake:
        for lora in (None, (), [(0, 0.5), (1, 0.0)]):
            with pytest.raises(Refused):
                connect().completion(TEXT, Options(lora=lora))
    left_out, empty, explicit = (asked.body for asked in fake.asked)
    assert "lora" not in left_out
    assert empty["lora"] == []
    assert explicit["lora"] == [{"id": 0, "scale": 0.5}, {"id": 1, "scale": 0.0}]
    assert "id_slot" not in explicit
    assert explicit["cache_prompt"] is True
