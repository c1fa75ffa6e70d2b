"""A model and adapters of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.errors import UsageProblem
from harness.files import sha256_of
from harness.memory import Memory
from harness.models.gguf_header import Header, Scalar, read_header
from harness.models.spec import Model, ModelFile, TrainedContext

ARCHITECTURE = "general.architecture"
"""The key of what a model, or the model an adapter is for, is."""
LETTERS = "AB"
"""Adapters are called by these in scenarios."""


def user_model(path: Path, loras: Sequence[Path], *, if_missing: str = "") -> Model:
    """The model at `path`, with its adapters as A and B, judged against cold runs.

    Raises `UsageProblem` for a file that is missing, truncated, or not what it should be.
    """
    if len(loras) > len(LETTERS):
        raise UsageProblem(f"--llama-lora was given {len(loras)} times; scenarios use at most two")
    metadata = checked_header(path, f"--llama-model={path}", if_missing=if_missing).metadata
    if metadata.get("general.type") == "adapter":
        raise UsageProblem(f"{path} is an adapter, not a model", hint="pass it as --llama-lora")
    for lora in loras:
        adapter = checked_header(lora, f"--llama-lora={lora}").metadata
        if adapter.get("adapter.type") != "lora":
            raise UsageProblem(f"{lora} is not a LoRA adapter", hint="convert_lora_to_gguf.py")
        if adapter.get(ARCHITECTURE) != metadata.get(ARCHITECTURE):
            raise UsageProblem(
                f"{lora} is for a model of architecture {adapter.get(ARCHITECTURE)}, "
                f"{path.name} is {metadata.get(ARCHITECTURE)}"
            )
    adapters = [ModelFile(lora.absolute(), sha256_of(lora)) for lora in loras]
    if len({adapter.sha256 for adapter in adapters}) < len(adapters):
        raise UsageProblem("--llama-lora was given the same adapter twice")
    return Model(
        name=path.name,
        file=ModelFile(path.absolute(), sha256_of(path)),
        adapters=dict(zip(LETTERS, adapters, strict=False)),
        memory=_memory(metadata),
        oracle=None,
        trained=_trained(metadata),
    )


def _trained(metadata: dict[str, Scalar | None]) -> TrainedContext | None:
    key = f"{metadata.get(ARCHITECTURE)}.context_length"
    tokens = metadata.get(key)
    return TrainedContext(key, tokens) if isinstance(tokens, int) else None


def checked_header(path: Path, shown: str, *, if_missing: str = "") -> Header:
    """The header of a person's GGUF file, which they call `shown`; a hint if it is missing.

    Raises `UsageProblem` for a file that is missing, cut short, or something else.
    """
    try:
        if not path.exists():
            raise UsageProblem(f"{shown}: no such file", hint=if_missing)
        if not path.is_file():
            raise UsageProblem(f"{shown} is not a file")
        return read_header(path)
    except ValueError as error:
        raise UsageProblem(
            f"{shown} is not a whole GGUF file: {error}", hint="was the download cut short?"
        ) from None
    except OSError as error:
        raise UsageProblem(f"{shown} cannot be read: {error.strerror}") from None


def _memory(metadata: dict[str, Scalar | None]) -> Memory:
    architecture = metadata.get(ARCHITECTURE)
    names = {name.removeprefix(f"{architecture}.") for name in metadata}
    if any(name.startswith(("ssm.", "wkv.", "shortconv.")) for name in names):
        # A model of both has a number of heads; some write 0 for none, some nothing at all.
        heads = metadata.get(f"{architecture}.attention.head_count", 0)
        return Memory.RECURRENT if heads == 0 else Memory.HYBRID
    windows = (f"{architecture}.attention.{name}" for name in ("sliding_window", "chunk_size"))
    return Memory.SWA if any(metadata.get(name) for name in windows) else Memory.DENSE
