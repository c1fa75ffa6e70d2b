"""A generated model as data, and how it is written to GGUF files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf

from harness.models.synthetic import vocabulary
from harness.models.synthetic.weights import Array

Tensors = dict[str, Array]
Lora = dict[str, tuple[Array, Array]]
"""By the tensor it adapts: the (rank, inputs) and the (outputs, rank) matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that goes into the files of one generated model."""

    architecture: str
    context_length: int
    embedding_length: int
    block_count: int
    integers: Mapping[str, int]
    floats: Mapping[str, float]
    tensors: Tensors
    adapters: Mapping[str, Lora]
    adapter_alpha: float


def write_model(recipe: Recipe, path: Path) -> None:
    """Writes the base model."""
    writer = gguf.GGUFWriter(path, recipe.architecture)
    writer.add_name(f"harness-{recipe.architecture}")
    writer.add_context_length(recipe.context_length)
    writer.add_embedding_length(recipe.embedding_length)
    writer.add_block_count(recipe.block_count)
    writer.add_vocab_size(len(vocabulary.TOKENS))
    for key, integer in recipe.integers.items():
        writer.add_uint32(key, integer)
    for key, number in recipe.floats.items():
        writer.add_float32(key, number)
    _add_tokenizer(writer)
    for name, array in recipe.tensors.items():
        writer.add_tensor(name, array)
    _finish(writer)


def write_lora(path: Path, architecture: str, lora: Lora, *, alpha: float) -> None:
    """Writes a LoRA adapter for models of an architecture."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for name, (down, up) in lora.items():
        writer.add_tensor(f"{name}.lora_a", down)
        writer.add_tensor(f"{name}.lora_b", up)
    _finish(writer)


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(vocabulary.TOKENS)
    writer.add_token_scores([0.0] * len(vocabulary.TOKENS))
    writer.add_token_types(vocabulary.TOKEN_TYPES)
    writer.add_unk_token_id(vocabulary.UNKNOWN)
    writer.add_bos_token_id(vocabulary.BOS)
    writer.add_eos_token_id(vocabulary.EOS)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(vocabulary.CHAT_TEMPLATE)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
