"""The generated model: its bytes are pinned, and every setting shows in its answers."""

from __future__ import annotations

import itertools
from pathlib import Path

import gguf
import pytest

from harness.answers import wrong_cell
from harness.bench import Bench
from harness.client import Options
from harness.errors import UsageProblem
from harness.models.gguf_header import read_header
from harness.models.synthetic import cells, dense, store
from harness.models.synthetic.store import generated, stranger
from harness.models.synthetic.weights import noise, signs
from harness.oracle import LEVELS
from harness.prompts import Prompt, prose

PINNED = {
    "model": "c09ac46f6da4feaca375e5a7717ae50ac2e52ffa55e597ae792de0a67e109b97",
    "A": "edab6ebdf8f4ea6639f0e0b9691a381d57ca60cb5c5501c9f9034ed550cc7d7d",
    "B": "5d7fb15a906d81f5af3fdc3a8d7b74277d7d1a882aca04f26ad4beb2795e4d14",
}
"""Every machine and every numpy must give these bytes."""


def test_bytes_are_pinned(tmp_path: Path) -> None:
    model = generated(directory=tmp_path)
    found = {"model": model.file.sha256} | {k: v.sha256 for k, v in model.adapters.items()}
    assert found == PINNED
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.gguf")) < 1_000_000


def test_a_stranger_has_another_number_of_layers(tmp_path: Path) -> None:
    layers = [
        read_header(path).metadata["llama.block_count"]
        for path in (generated(directory=tmp_path).file.path, stranger(tmp_path).path)
    ]
    assert layers == [2, 3]
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


def test_no_layer_writes_the_reserved_dimensions_but_the_meter() -> None:
    tensors = dense.recipe().tensors
    for name, array in tensors.items():
        if name.endswith(("attn_output.weight", "ffn_down.weight")):
            reserved = array[: cells.RESERVED].copy()
            if name == "blk.0.attn_output.weight":
                reserved[:, : dense.HEAD_WIDTH] = 0.0
            assert not reserved.any(), name


def test_the_cache_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = generated(directory=tmp_path)

    def never() -> None:
        raise AssertionError("written again")

    monkeypatch.setattr(store, "KINDS", dict.fromkeys(store.KINDS, never))
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
    assert generated(directory=tmp_path).file.sha256 == PINNED["model"]


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


@pytest.mark.parametrize("prompt", [prose("one", 90), prose("two", 700)], ids=["90", "700"])
def test_every_setting_shows_in_the_answer(
    llama_bench: Bench, tmp_path: Path, prompt: Prompt
) -> None:
    """All nine cells, cold; and no other cell is anywhere near."""
    oracle = llama_bench.model.oracle
    assert oracle is not None
    config = llama_bench.config({"A": 0.0, "B": 0.0}, parallel=1, cache_ram=0)
    with llama_bench.server(config, tmp_path / "server.log") as server:
        for a, b in itertools.product(LEVELS, LEVELS):
            options = Options(lora=[(0, a), (1, b)], cache_prompt=False, n_predict=8)
            reply = server.client.completion(prompt.text, options)
            assert wrong_cell(oracle, reply.tokens, {"A": a, "B": b}) is None
            for token in reply.tokens:
                others = [lp for id, lp in token.top if oracle.cells([id]) != ((a, b),)]
                assert token.top[0][1] - max(others, default=-100.0) > 4  # nats


@pytest.mark.parametrize(("stale", "flips"), [(0.30, True), (0.15, False)])
def test_a_stale_share_flips_the_cell_from_a_quarter_on(
    llama_bench: Bench, tmp_path: Path, stale: float, flips: bool
) -> None:
    """What the oracle can see: text marked with '#' counts like an adapter A at scale 1."""
    oracle = llama_bench.model.oracle
    assert oracle is not None
    marks = int(400 * stale)
    prompt = "#" * marks + prose("rest", 400 - marks).text
    config = llama_bench.config({}, parallel=1, cache_ram=0)
    with llama_bench.server(config, tmp_path / "server.log") as server:
        reply = server.client.completion(prompt, Options(cache_prompt=False))
        assert (wrong_cell(oracle, reply.tokens, {}) is not None) is flips
