"""A generated model as data, and how it is written to GGUF files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf

from harness.models.synthetic import vocabulary
from harness.models.synthetic.weights import Array

Tensors = dict[str, Array]
Lora = dict[str, tuple[Array, Array]]
"""By the tensor it adapts: the matrices that GGUF calls lora_a and lora_b, in this order."""

Value = bool | int | float | str | Sequence[int]
"""Of a GGUF key. An int, or each of a sequence, is written as uint32, a float as float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that goes into the files of one generated model."""

    architecture: str
    metadata: Mapping[str, Value]
    """What the architecture's keys say, without its name before each."""
    tensors: Tensors
    adapters: Mapping[str, Lora]
    adapter_metadata: Mapping[str, Value]
    chat_template: str | None = vocabulary.CHAT_TEMPLATE
    tokenizer_metadata: Mapping[str, Value]
    """What the tokenizer's keys say beside the vocabulary, without `tokenizer.ggml.`."""


def write_model(recipe: Recipe, path: Path) -> None:
    """Writes the base model."""
    writer = gguf.GGUFWriter(path, recipe.architecture)
    writer.add_name(f"harness-{recipe.architecture}")
    for key, value in recipe.metadata.items():
        _add(writer, f"{recipe.architecture}.{key}", value)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(vocabulary.TOKENS)
    writer.add_token_scores([0.0] * len(vocabulary.TOKENS))
    writer.add_token_types(vocabulary.TOKEN_TYPES)
    for key, value in recipe.tokenizer_metadata.items():
        _add(writer, f"tokenizer.ggml.{key}", value)
    if recipe.chat_template is not None:
        writer.add_chat_template(recipe.chat_template)
    for name, array in recipe.tensors.items():
        writer.add_tensor(name, array)
    _finish(writer)


def write_lora(path: Path, architecture: str, lora: Lora, *, metadata: Mapping[str, Value]) -> None:
    """Writes a LoRA adapter for models of an architecture."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    for key, value in metadata.items():
        _add(writer, f"adapter.{key}", value)
    for name, (a, b) in lora.items():
        writer.add_tensor(f"{name}.lora_a", a)
        writer.add_tensor(f"{name}.lora_b", b)
    _finish(writer)


def _add(writer: gguf.GGUFWriter, key: str, value: Value) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_key_value(
            key, list(value), gguf.GGUFValueType.ARRAY, sub_type=gguf.GGUFValueType.UINT32
        )


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
