"""A user's own model: taken for what its metadata says, refused in one line when unusable."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from harness.errors import UsageProblem
from harness.memory import Memory
from harness.models.synthetic.store import MODELS, generated
from harness.models.user import user_model

MODEL = generated()
A, B = (adapter.path for adapter in MODEL.adapters.values())


def test_model_and_adapters() -> None:
    model = user_model(MODEL.file.path, [A, B])
    assert model.file == MODEL.file
    assert model.adapters == MODEL.adapters
    assert model.memory is Memory.DENSE
    assert model.oracle is None


def test_a_model_without_adapters() -> None:
    assert user_model(MODEL.file.path, []).adapters == {}


@pytest.mark.parametrize("part", [0, 3, 1000, 200_000, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, part: int) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(MODEL.file.path.read_bytes()[:part])
    with pytest.raises(UsageProblem, match=r"model\.gguf is not a whole GGUF file") as problem:
        user_model(path, [])
    assert "\n" not in str(problem.value)
    with pytest.raises(UsageProblem, match="--llama-lora"):
        user_model(MODEL.file.path, [path])


def test_missing_files() -> None:
    with pytest.raises(UsageProblem, match=r"--llama-model=nowhere\.gguf: no such file"):
        user_model(Path("nowhere.gguf"), [])
    with pytest.raises(UsageProblem, match=r"--llama-lora=nowhere\.gguf: no such file"):
        user_model(MODEL.file.path, [Path("nowhere.gguf")])


def test_files_mixed_up() -> None:
    with pytest.raises(UsageProblem, match="is an adapter, not a model"):
        user_model(A, [])
    with pytest.raises(UsageProblem, match="is not a LoRA adapter"):
        user_model(MODEL.file.path, [MODEL.file.path])
    with pytest.raises(UsageProblem, match="3 times"):
        user_model(MODEL.file.path, [A, B, A])
    with pytest.raises(UsageProblem, match="the same adapter twice"):
        user_model(MODEL.file.path, [A, A])


@pytest.mark.parametrize("name", MODELS)
def test_the_memory_kind_is_read_from_the_file(name: str) -> None:
    model = generated(name)
    assert user_model(model.file.path, []).memory is model.memory


@pytest.mark.parametrize(
    ("keys", "tensor", "memory"),
    [
        ({}, "", Memory.DENSE),
        ({"attention.sliding_window": 0}, "", Memory.DENSE),
        ({"attention.chunk_size": 8192}, "", Memory.SWA),
        ({"ssm.state_size": 16, "attention.head_count": 4}, "blk.0.attn_norm", Memory.RECURRENT),
        ({"ssm.state_size": 16}, "blk.3.attn_qkv", Memory.HYBRID),
        ({"ssm.state_size": 16}, "blk.3.attn_kv_a_mqa", Memory.HYBRID),
    ],
)
def test_the_memory_kind_of_others(
    tmp_path: Path, keys: dict[str, int], tensor: str, memory: Memory
) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "some")
    for key, value in keys.items():
        writer.add_uint32(f"some.{key}", value)
    if tensor:
        writer.add_tensor(f"{tensor}.weight", np.ones(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert user_model(path, []).memory is memory
