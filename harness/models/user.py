"""A model and adapters of the user's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from harness.errors import UsageProblem
from harness.files import sha256_of
from harness.memory import Memory
from harness.models.gguf_header import Header, checked_header
from harness.models.spec import Model, ModelFile, TrainedContext

_ATTENTION = re.compile(r"\.attn_(q|k|v|qkv|q_a|kv_a_mqa)\.weight$")
LETTERS = "AB"
"""Adapters are called by these in scenarios."""


def user_model(path: Path, loras: Sequence[Path], *, if_missing: str = "") -> Model:
    """The model at `path`, with its adapters as A and B, judged against cold runs.

    Raises `UsageProblem` for a file that is missing, truncated, or not what it should be.
    """
    if len(loras) > len(LETTERS):
        raise UsageProblem(f"--llama-lora was given {len(loras)} times; scenarios use at most two")
    header = checked_header(path, f"--llama-model={path}", if_missing=if_missing)
    if header.is_adapter:
        raise UsageProblem(f"{path} is an adapter, not a model", hint="pass it as --llama-lora")
    if header.of_architecture("attention.causal") is False:
        raise UsageProblem(f"{path} is an encoder, which generates no text")
    for lora in loras:
        adapter = checked_header(lora, f"--llama-lora={lora}")
        if adapter.metadata.get("adapter.type") != "lora":
            raise UsageProblem(f"{lora} is not a LoRA adapter", hint="convert_lora_to_gguf.py")
        if adapter.architecture != header.architecture:
            raise UsageProblem(
                f"{lora} is for a model of architecture {adapter.architecture}, "
                f"{path.name} is {header.architecture}"
            )
    adapters = [ModelFile(lora.absolute(), sha256_of(lora)) for lora in loras]
    if len({adapter.sha256 for adapter in adapters}) < len(adapters):
        raise UsageProblem("--llama-lora was given the same adapter twice")
    return Model(
        name=path.name,
        file=ModelFile(path.absolute(), sha256_of(path)),
        adapters=dict(zip(LETTERS, adapters, strict=False)),
        memory=_memory(header),
        oracle=None,
        trained=_trained(header),
    )


def _trained(header: Header) -> TrainedContext | None:
    if "position_embd.weight" in header.shapes:  # it cannot see more than it has positions for
        return None
    tokens = header.of_architecture("context_length")
    key = f"{header.architecture}.context_length"
    return TrainedContext(key, tokens) if isinstance(tokens, int) else None


def _memory(header: Header) -> Memory:
    names = {name.removeprefix(f"{header.architecture}.") for name in header.metadata}
    if any(name.startswith(("ssm.", "wkv.", "shortconv.")) for name in names):
        # Not by the number of heads, which some recurrent models have for other things.
        attends = any(_ATTENTION.search(tensor) for tensor in header.shapes)
        return Memory.HYBRID if attends else Memory.RECURRENT
    windows = ("attention.sliding_window", "attention.chunk_size")
    return Memory.SWA if any(header.of_architecture(name) for name in windows) else Memory.DENSE
