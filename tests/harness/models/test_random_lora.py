"""Random adapters: for any model, the same bytes each time, and felt by a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from harness.bench import Bench
from harness.builds.build import Build
from harness.cli import main
from harness.commands.output import EXIT_USAGE
from harness.models.gguf_header import read_header
from harness.models.random_lora import RANK, random_adapter
from harness.models.synthetic import recipe
from harness.models.synthetic.store import generated, stranger
from harness.models.user import user_model
from harness.prompts import Route, prose
from harness.server.guard import Guard
from harness.setting import Setting

MODEL = generated().file.path


def made(tmp_path: Path, *options: str, model: Path = MODEL) -> Path:
    out = tmp_path / "lora.gguf"
    assert main(["make-lora", str(model), f"--out={out}", *options]) == 0
    return out


def write_model(path: Path, architecture: str, shapes: dict[str, tuple[int, ...]]) -> Path:
    """A file with tensors of these shapes (inputs, outputs) and nothing else."""
    writer = gguf.GGUFWriter(path, architecture)
    for name, shape in shapes.items():
        writer.add_tensor(name, np.zeros(shape[::-1], dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_it_adapts_what_makes_a_state(tmp_path: Path) -> None:
    header = read_header(made(tmp_path))
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["general.type"] == "adapter"
    assert header.metadata["adapter.type"] == "lora"
    model = read_header(MODEL).shapes
    adapted = {f"blk.{block}.attn_{matrix}.weight" for block in (0, 1) for matrix in "kv"}
    expected: dict[str, tuple[int, ...]] = {}
    for name in adapted:
        inputs, outputs = model[name]
        expected |= {f"{name}.lora_a": (inputs, RANK), f"{name}.lora_b": (RANK, outputs)}
    assert header.shapes == expected


def test_other_memory_is_adapted_too(tmp_path: Path) -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (64, 99),
        "blk.0.ssm_in.weight": (64, 128),
        "blk.0.ssm_in.bias": (128,),
        "blk.11.attn_qkv.weight": (64, 192),
        "blk.11.attn_norm.weight": (64,),
        "blk.12.time_mix_key.weight": (64, 64),
    }
    model = write_model(tmp_path / "model.gguf", "some", shapes)
    adapted = {name.rpartition(".")[0] for name in read_header(made(tmp_path, model=model)).shapes}
    assert adapted == {
        "blk.0.ssm_in.weight",
        "blk.11.attn_qkv.weight",
        "blk.12.time_mix_key.weight",
    }


def test_where_nothing_else_can_be_adapted_the_next_layers_state_is(tmp_path: Path) -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "blk.0.attn_kv_a_mqa.weight": (64, 48),
        "blk.0.attn_output.weight": (64, 64),
    }
    model = write_model(tmp_path / "model.gguf", "some", shapes)
    assert set(read_header(made(tmp_path, model=model)).shapes) == {
        f"blk.0.attn_output.weight.lora_{side}" for side in "ab"
    }


def test_bytes_follow_from_shapes_and_seed(tmp_path: Path) -> None:
    first = made(tmp_path).read_bytes()
    assert made(tmp_path).read_bytes() == first  # there already, as it would be written
    (tmp_path / "lora.gguf").unlink()
    assert made(tmp_path, "--seed=B").read_bytes() != first
    cached = random_adapter(generated().file, "A")
    assert cached.path.read_bytes() == first
    assert random_adapter(generated().file, "B") != cached


def test_the_path_is_printed_and_by_default_beside_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness", "make-lora", str(MODEL)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "model-lora-A.gguf\n"
    assert [path.name for path in tmp_path.iterdir()] == ["model-lora-A.gguf"]


def test_other_models_and_other_sources_have_adapters_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = generated().file
    first = random_adapter(model, "A").path
    assert random_adapter(stranger(), "A").path != first
    monkeypatch.setattr(recipe, "__file__", str(MODEL))  # as if its text had changed
    assert random_adapter(model, "A").path != first


def write_split(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint16("split.count", 2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_what_cannot_be_done_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    adapter, other = made(tmp_path), tmp_path / "other.gguf"
    other.write_text("somebody's")
    os.mkfifo("fifo")
    bare = write_model(tmp_path / "bare.gguf", "some", {"blk.0.ffn_up.weight": (64, 64)})
    empty = write_model(tmp_path / "empty.gguf", "some", {"blk.0.attn_k.weight": (0, 8)})
    split = write_split(tmp_path / "split.gguf")
    cases = [
        ([str(adapter)], "is not a model"),
        (["nowhere.gguf"], "no such file"),
        (["n" * 300], "cannot be read: File name too long"),
        ([str(tmp_path)], "is not a file"),
        (["fifo"], "is not a file"),
        ([str(other)], "is not a whole GGUF file"),
        ([str(bare)], "has none of the matrices"),
        ([str(empty)], "has none of the matrices"),
        ([str(split)], "is one of several parts (llama-gguf-split --merge)"),
        ([str(MODEL), f"--out={other}"], "is there already"),
        ([str(MODEL), f"--out={MODEL}"], "is there already"),
        ([str(MODEL), f"--out={tmp_path}"], "is no name for a file"),
        ([str(MODEL), "--out=."], "is no name for a file"),
        ([str(MODEL), "--out=fifo"], "is no name for a file"),
        ([str(MODEL), "--out=/proc/x.gguf"], "cannot be written"),
        ([str(MODEL), f"--out={'n' * 300}"], "cannot be written: File name too long"),
        ([str(MODEL), "--out=a:b.gguf"], "whose path has ':' or ','"),
    ]
    before = sorted(tmp_path.iterdir())
    capsys.readouterr()
    for arguments, words in cases:
        assert main(["make-lora", *arguments]) == EXIT_USAGE
        out, err = capsys.readouterr()
        assert out == ""
        assert words in err
        assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before
    assert other.read_text() == "somebody's"


@pytest.mark.parametrize("seed", ["a/b", "a:b", "", "\udcff"])
def test_a_seed_is_part_of_a_name(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["make-lora", str(MODEL), f"--seed={seed}"])
    assert left.value.code == EXIT_USAGE
    assert "letters, digits" in capsys.readouterr().err


def test_a_server_loads_it_and_its_answers_change(
    tmp_path: Path, llama_build: Build, llama_guard: Guard
) -> None:
    """By more than any noise: an adapter that did nothing could not be judged by."""
    bench = Bench(
        program=llama_build.program,
        model=user_model(MODEL, [made(tmp_path)]),
        guard=llama_guard,
        directory=tmp_path,
        seconds=30,
        device="none",
    )
    reference = bench.reference(bench.config({"A": 0.0}))
    tolerance = reference.tolerance(30)
    one, other = (
        reference.cold(Route.COMPLETION, prose("P", 150), Setting.of({"A": scale}), 30)
        for scale in (0.0, 1.0)
    )
    bench.close()
    assert tolerance.tells
    assert one.tokens[0] != other.tokens[0]
