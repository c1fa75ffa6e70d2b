"""The generated models: their bytes are pinned, and adapters and text show in their answers."""

from __future__ import annotations

import hashlib
import itertools
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import gguf
import pytest
import requests

from harness.answers import BASE_TOLERANCE, difference, wrong_cell
from harness.bench import Bench
from harness.builds.build import Build
from harness.client import Options
from harness.errors import UsageProblem
from harness.memory import Memory
from harness.models.gguf_header import read_header
from harness.models.spec import Model
from harness.models.synthetic import cells, llama, store
from harness.models.synthetic.recipe import Recipe
from harness.models.synthetic.store import (
    ENCODERS,
    MODELS,
    activated_adapter,
    draft,
    files_of,
    generated,
    stranger,
)
from harness.models.synthetic.weights import noise, signs
from harness.oracle import LEVELS
from harness.prompts import prose
from harness.replies import CompletionReply
from harness.server.config import CPU, ConfigFields
from harness.server.guard import Guard
from harness.server.process import LlamaServer

EVERY_MODEL = pytest.mark.parametrize("name", MODELS)
FIRST_MEMORY = {
    "gemma3": re.compile(r"blk\.0\."),
    "gptoss": re.compile(r"blk\.0\."),
    "granitehybrid": re.compile(r"blk\.0\."),
    "falconh1": re.compile(r"blk\.\d\.ssm_in"),
    "qwen3next": re.compile(r"blk\.0\."),
}
"""Models with a meter in each of two memories, and what adapters adapt of the first of them."""

PINNED: dict[str, str] = {
    "llama": "69c4b7980d9ca7eb",
    "qwen3": "ddd97896433c094f",
    "qwen3moe": "9c38e52f8b639e65",
    "deepseek2": "4057bbcd4d7219f0",
    "gemma3": "f46ceee901df9e37",
    "gptoss": "9450ebbe412e8789",
    "mamba2": "26422de42b7b838a",
    "rwkv7": "9fa98821ecf58350",
    "granitehybrid": "34cb2313639af051",
    "falconh1": "5242c44fdc4154fa",
    "qwen3next": "3ae3799e78001b70",
    "lfm2": "30aabddff1d525a5",
    "embedding": "e622e2eeeecd8914",
    "rerank": "37cc491f2896a3a1",
}
"""Every machine and every numpy must give these bytes."""

Ask = Callable[..., CompletionReply]
"""Sends a prompt, of which nothing is reused, under scales of A and B."""


@pytest.mark.parametrize("name", [*MODELS, *ENCODERS])
def test_bytes_are_pinned(tmp_path: Path, name: str) -> None:
    files = files_of(name, tmp_path)
    digest = hashlib.sha256("".join(files[part].sha256 for part in ("model", "A", "B")).encode())
    assert digest.hexdigest()[:16] == PINNED[name]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.gguf")) < 1_100_000
    assert files["model"].path.stat().st_size < 1_000_000


def test_a_stranger_has_another_number_of_layers(tmp_path: Path) -> None:
    layers = [
        read_header(file.path).metadata["llama.block_count"]
        for file in (generated(directory=tmp_path).file, stranger(tmp_path), draft(tmp_path))
    ]
    assert layers == [2, 3, 1]
    assert stranger(tmp_path) == stranger(tmp_path)


def test_weights_are_multiples_of_a_power_of_two() -> None:
    array = noise("x", 4, 8, exponent=-3)
    assert array.shape == (4, 8)
    assert ((array * 8) % 1 == 0).all()
    assert (abs(array) <= 16).all()
    assert set(signs("x", 100).tolist()) == {1.0, -1.0}
    assert (noise("x", 4, 8, exponent=-3) == array).all()
    assert (noise("y", 4, 8, exponent=-3) != array).any()


def test_every_embedding_has_the_same_norm() -> None:
    table = cells.embedding("x", 64)
    assert len(set((table.astype("int64") ** 2).sum(axis=1).tolist())) == 1


@EVERY_MODEL
def test_no_layer_writes_the_reserved_dimensions_but_a_meter(name: str) -> None:
    """Of what writes to the residual stream, no more than three columns have such rows."""
    endings = (
        "_output.weight",
        "_down.weight",
        "_down_exps.weight",
        "_out.weight",
        "out_proj.weight",
    )
    writers = {
        tensor: array
        for tensor, array in MODELS[name].recipe().tensors.items()
        if tensor.endswith(endings)
    }
    assert len(writers) >= 2
    for tensor, array in writers.items():
        reserved = array[..., : cells.RESERVED, :].copy()
        reserved[..., cells.MARK_B] = 0.0  # rwkv7 keeps the mean of rows there
        assert (reserved != 0).any(axis=-2).sum() in (0, len(cells.METER_ROW)), tensor


def test_the_cache_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = generated(directory=tmp_path)

    def never() -> None:
        raise AssertionError("written again")

    again = store.Entry("dense", Memory.DENSE, never)  # type: ignore[arg-type]  # it is not called
    monkeypatch.setattr(store, "MODELS", {"llama": again})
    assert generated(directory=tmp_path) == first


@pytest.mark.parametrize("damage", ["truncate", "delete", "{", "{}", "5", "flip"])
def test_a_damaged_cache_is_written_again(tmp_path: Path, damage: str) -> None:
    first = generated(directory=tmp_path)
    path = first.file.path
    if damage == "truncate":
        path.write_bytes(path.read_bytes()[:1000])
    elif damage == "delete":
        path.unlink()
    elif damage != "flip":
        (path.parent / "sha256.json").write_text(damage)
    else:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    again = generated(directory=tmp_path)
    assert again == first
    assert hashlib.sha256(path.read_bytes()).hexdigest() == first.file.sha256


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    home = generated(directory=tmp_path).file.path.parent
    assert list(tmp_path.iterdir()) == [home]


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageProblem, match="cannot be kept"):
        generated(directory=tmp_path / "file")


def test_another_recipe_has_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = generated(directory=tmp_path).file.path
    monkeypatch.setattr("importlib.metadata.version", lambda name: "another gguf writer")
    assert generated(directory=tmp_path).file.path != one


def test_files_are_gguf_and_adapters_are_lora() -> None:
    model = generated()
    fields = gguf.GGUFReader(model.adapters["A"].path).fields
    assert fields["adapter.type"].contents() == "lora"
    assert fields["general.architecture"].contents() == "llama"


@pytest.fixture
def serving(llama_build: Build, llama_guard: Guard, tmp_path: Path) -> Callable[..., LlamaServer]:
    """Makes a server with a model, on the CPU, with its adapters at scale 0."""

    def serving(model: Model, *args: str, **fields: Unpack[ConfigFields]) -> LlamaServer:
        bench = Bench(
            program=llama_build.program,
            model=model,
            guard=llama_guard,
            directory=tmp_path,
            seconds=60,
            device=CPU,
            extra_args=args,
        )
        scales = dict.fromkeys(model.adapters, 0.0)
        required: ConfigFields = {"parallel": 1, "cache_ram": 0, **fields}
        config = bench.config(scales, **required)
        return bench.server(config, tmp_path / f"{len(list(tmp_path.iterdir()))}.log")

    return serving


@pytest.fixture
def asking(serving: Callable[..., LlamaServer]) -> Callable[[Model], AbstractContextManager[Ask]]:
    """Cold answers of a model, on a server of its own."""

    @contextmanager
    def asking(model: Model) -> Iterator[Ask]:
        with serving(model) as server:

            def ask(text: str, a: float = 0.0, b: float = 0.0) -> CompletionReply:
                lora = [(0, a), (1, b)]
                options = Options(lora=lora, cache_prompt=False, n_predict=8, n_probs=100)
                return server.client.completion(text, options)

            yield ask

    return asking


Asking = Callable[[Model], AbstractContextManager[Ask]]


@EVERY_MODEL
def test_every_setting_shows_in_the_answer(asking: Asking, name: str) -> None:
    """All nine cells, cold; and no other cell is anywhere near."""
    model = generated(name)
    assert model.oracle is not None
    with asking(model) as ask:
        for size, a, b in itertools.product((90, 700), LEVELS, LEVELS):
            reply = ask(prose("text", size).text, a, b)
            assert wrong_cell(model.oracle, reply.tokens, {"A": a, "B": b}) is None
            for token in reply.tokens:
                others = [lp for id, lp in token.top if model.oracle.cells([id]) != ((a, b),)]
                assert token.top[0][1] - max(others, default=-100.0) > 4  # nats


@EVERY_MODEL
@pytest.mark.parametrize("cache_type", ["q8_0", "q4_0"])
@pytest.mark.parametrize("parallel", [1, 4], ids=["np1", "np4"])
def test_k_and_v_can_be_quantised(
    serving: Callable[..., LlamaServer], name: str, cache_type: str, parallel: int
) -> None:
    """Start each model with quantised K and V, and find each adapter's answer in its cell."""
    model = generated(name)
    assert model.oracle is not None
    fields: ConfigFields = {
        "flash_attn": "on",
        "cache_type_k": cache_type,
        "cache_type_v": cache_type,
        "parallel": parallel,
        "kv_unified": True,
    }
    with serving(model, **fields) as server:
        for a, b in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)):
            options = Options(lora=[(0, a), (1, b)], cache_prompt=False)
            reply = server.client.completion(prose("text", 400).text, options)
            assert wrong_cell(model.oracle, reply.tokens, {"A": a, "B": b}) is None


@EVERY_MODEL
def test_stale_text_shows(asking: Asking, name: str) -> None:
    """What the oracle can see: text marked with '#' counts like an adapter A at scale 1.

    A single token of 400 is beyond the tolerance; a third of them is another cell, or more than
    half where there are two memories.
    """
    model = generated(name)
    assert model.oracle is not None
    text = prose("rest", 400).text
    stale = 220 if name in FIRST_MEMORY else 133
    with asking(model) as ask:
        right = ask(text)
        for marked in ("#" + text[1:], text[:150] + "#" + text[151:]):
            assert difference(right.tokens[0], ask(marked).tokens[0]) > 4 * BASE_TOLERANCE
        for marked in ("#" * stale + text[stale:], text[:-stale] + "#" * stale):
            assert wrong_cell(model.oracle, ask(marked).tokens, {}) is not None


@pytest.mark.parametrize("name", FIRST_MEMORY)
@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
def test_each_of_two_memories_shows(
    asking: Asking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, first: bool
) -> None:
    """An adapter that only one of them feels is another cell: as if the other were all stale."""
    entry = MODELS[name]

    def of_one_memory() -> Recipe:
        recipe = entry.recipe()
        adapters = {
            letter: {t: ab for t, ab in lora.items() if bool(FIRST_MEMORY[name].match(t)) is first}
            for letter, lora in recipe.adapters.items()
        }
        return replace(recipe, adapters=adapters)

    monkeypatch.setattr(store, "MODELS", {name: replace(entry, recipe=of_one_memory)})
    model = generated(name, tmp_path)
    assert model.oracle is not None
    with asking(model) as ask:
        for a, b in ((1.0, 0.0), (0.0, 1.0)):
            reply = ask(prose("text", 400).text, a, b)
            assert wrong_cell(model.oracle, reply.tokens, {"A": a, "B": b}) is not None
            assert wrong_cell(model.oracle, reply.tokens, {}) is not None


@EVERY_MODEL
def test_right_reuse_is_far_below_the_tolerance(
    serving: Callable[..., LlamaServer], name: str
) -> None:
    with serving(generated(name)) as server:
        for number, part in itertools.product(range(3), (300, 560, 599)):
            text = prose(f"text {number}", 600).text
            cold = server.client.completion(text, Options(cache_prompt=False, n_predict=1))
            server.client.completion(text[:part], Options(cache_prompt=False, n_predict=1))
            warm = server.client.completion(text, Options(n_predict=1))
            assert warm.timings.cache_n > part - 100
            assert difference(cold.tokens[0], warm.tokens[0]) < BASE_TOLERANCE / 4


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_is_served(serving: Callable[..., LlamaServer], name: str) -> None:
    """Its adapters are felt, and the same text is the same again."""
    files = files_of(name)
    model = Model(
        name=name,
        file=files["model"],
        adapters={letter: files[letter] for letter in ("A", "B")},
        memory=Memory.DENSE,
        oracle=None,
    )
    args = ("--reranking",) if name == "rerank" else ("--embeddings",)
    with serving(model, *args, ctx_size=512) as server:
        ask = _reranked if name == "rerank" else _embedded
        plain = ask(server)
        assert plain == ask(server)
        server.client.set_lora_adapters([(0, 1.0), (1, 0.0)])
        assert plain != ask(server)


def _embedded(server: LlamaServer) -> object:
    body = {"input": "hello world"}
    reply = requests.post(f"{server.client.url}/v1/embeddings", json=body, timeout=60)
    return reply.json()["data"][0]["embedding"]


def _reranked(server: LlamaServer) -> object:
    body = {"query": "what is a panda", "documents": ["hi", "a panda is a bear"]}
    reply = requests.post(f"{server.client.url}/v1/rerank", json=body, timeout=60)
    return [(found["index"], found["relevance_score"]) for found in reply.json()["results"]]


def test_a_model_drafts_for_the_generated_llama(
    serving: Callable[..., LlamaServer], llama_build: Build
) -> None:
    if "draft-simple" not in _help(llama_build):
        pytest.skip("needs a build with --spec-type draft-simple")
    text = prose("text", 300).text
    drafted = ("--model-draft", str(draft().path), "--spec-type", "draft-simple")
    with serving(generated()) as alone, serving(generated(), *drafted) as together:
        options = Options(n_predict=24, cache_prompt=False)
        assert (
            together.client.completion(text, options).text
            == alone.client.completion(text, options).text
        )
        assert "draft" in together.log.since(0).text()


def test_an_activated_adapter_is_felt_from_its_invocation_on(
    serving: Callable[..., LlamaServer],
) -> None:
    model = generated()
    assert model.oracle is not None
    activated = replace(model, adapters={"A": activated_adapter()})
    with serving(activated) as server:
        for at, cell in ((0, (1.0, 0.0)), (390, (0.0, 0.0))):
            text = prose("text", 400).text
            invoking = text[:at] + llama.INVOCATION + text[at:]
            reply = server.client.completion(invoking, Options(lora=[(0, 1.0)]))
            assert model.oracle.cells(token.id for token in reply.tokens[:1]) == (cell,)


def _help(build: Build) -> str:
    done = subprocess.run([build.origin.path, "--help"], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr
