"""A model and adapters of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.errors import UsageProblem
from harness.files import sha256_of
from harness.memory import Memory
from harness.models.gguf_header import Scalar, read_metadata
from harness.models.spec import Model, ModelFile

_ARCHITECTURE = "general.architecture"
LETTERS = "AB"
"""Adapters are called by these in scenarios."""


def user_model(path: Path, loras: Sequence[Path]) -> Model:
    """The model at `path`, with its adapters as A and B, judged against cold runs.

    Raises `UsageProblem` for a file that is missing, truncated, or not what it should be.
    """
    if len(loras) > len(LETTERS):
        raise UsageProblem(f"--llama-lora was given {len(loras)} times; scenarios use at most two")
    metadata = _metadata(path, "--llama-model")
    if metadata.get("general.type") == "adapter":
        raise UsageProblem(f"{path} is an adapter, not a model", hint="pass it as --llama-lora")
    for lora in loras:
        adapter = _metadata(lora, "--llama-lora")
        if adapter.get("adapter.type") != "lora":
            raise UsageProblem(f"{lora} is not a LoRA adapter", hint="convert_lora_to_gguf.py")
        if adapter.get(_ARCHITECTURE) != metadata.get(_ARCHITECTURE):
            raise UsageProblem(
                f"{lora} is for a model of architecture {adapter.get(_ARCHITECTURE)}, "
                f"{path.name} is {metadata.get(_ARCHITECTURE)}"
            )
    return Model(
        name=path.name,
        file=ModelFile(path.resolve(), sha256_of(path)),
        adapters={
            letter: ModelFile(lora.resolve(), sha256_of(lora))
            for letter, lora in zip(LETTERS, loras, strict=False)
        },
        memory=_memory(metadata),
        oracle=None,
    )


def _metadata(path: Path, option: str) -> dict[str, Scalar | None]:
    if not path.is_file():
        raise UsageProblem(f"{option}={path}: no such file")
    try:
        return read_metadata(path)
    except ValueError as error:
        raise UsageProblem(
            f"{option}={path} is not a whole GGUF file: {error}", hint="was the download cut short?"
        ) from None
    except OSError as error:
        raise UsageProblem(f"{option}={path} cannot be read: {error.strerror}") from None


def _memory(metadata: dict[str, Scalar | None]) -> Memory:
    architecture = metadata.get(_ARCHITECTURE)
    names = {name.removeprefix(f"{architecture}.") for name in metadata}
    if any(name.startswith(("ssm.", "wkv.", "shortconv.")) for name in names):
        # A model of both has a number of heads; some write 0 for none, some nothing at all.
        heads = metadata.get(f"{architecture}.attention.head_count", 0)
        return Memory.RECURRENT if heads == 0 else Memory.HYBRID
    windows = (f"{architecture}.attention.{name}" for name in ("sliding_window", "chunk_size"))
    return Memory.SWA if any(metadata.get(name) for name in windows) else Memory.DENSE
