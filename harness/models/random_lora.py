"""A random LoRA adapter for any model: most people have none for theirs."""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from harness.errors import UsageProblem
from harness.files import sha256_of
from harness.models import shelf
from harness.models.gguf_header import Header, checked_header
from harness.models.spec import ModelFile
from harness.models.synthetic import recipe, weights
from harness.models.synthetic.recipe import Lora, write_lora
from harness.models.synthetic.weights import Array, noise

RANK = 8
STRENGTH = 0.5
"""RMS of what scale 1 adds to a projection of unit inputs, where usual weights make about 1."""

_METADATA = {"lora.alpha": float(RANK)}
_STATE_MATRICES = (
    *("attn_k", "attn_v", "attn_qkv"),
    "ssm_in",
    "shortconv.in_proj",
    *("time_mix_key", "time_mix_value"),
)
"""What makes the state of a token, in every layer: whatever of these a model has.

Nothing else is adapted, so that answers change by what a state was computed under, and hardly by
what the last token is.
"""
_OTHER_MATRICES = ("attn_output", "ffn_down")
"""Where there is none of those, or llama.cpp adapts none (MLA): these change the next layer's."""


def make_random_lora(model: Path, path: Path, *, seed: str) -> None:
    """Writes an adapter for the model: the same bytes for the same shapes and seed.

    Raises `UsageProblem` for what is no model, or none that this can adapt, where something else
    is at `path` already, and where it cannot be written.
    """
    architecture, lora = _lora(model, seed)
    beside = path.parent / f".make-lora-{os.getpid()}"
    try:
        if not path.name or (path.exists() and not path.is_file()):
            raise UsageProblem(f"{path} is no name for a file")
        write_lora(beside, architecture, lora, metadata=_METADATA)
        if path.exists() and sha256_of(path) != sha256_of(beside):
            raise UsageProblem(f"{path} is there already", hint="--out names another place")
        beside.replace(path)
    except OSError as error:
        raise UsageProblem(f"{path} cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):  # there may be no such directory
            beside.unlink(missing_ok=True)


def random_adapter(model: ModelFile, seed: str) -> ModelFile:
    """The same in the cache, written there unless it is there. Raises as `shelf.kept` does."""
    sources = (Path(__file__), Path(weights.__file__), Path(recipe.__file__))
    name = f"random-lora-{seed}-{model.sha256[:16]}-{shelf.content_key(sources)}"

    def write(home: Path) -> None:
        architecture, lora = _lora(model.path, seed)
        write_lora(home / "random.gguf", architecture, lora, metadata=_METADATA)

    return shelf.kept(name, write)["random"]


def _lora(model: Path, seed: str) -> tuple[str, Lora]:
    """The architecture of a model, and an adapter for it."""
    header = checked_header(model, str(model))
    if header.is_adapter or not header.architecture:
        raise UsageProblem(f"{model} is not a model")
    if header.metadata.get("split.count", 0) not in (0, 1):
        raise UsageProblem(f"{model} is one of several parts", hint="llama-gguf-split --merge")
    lora = _adapted(header, _STATE_MATRICES, seed) or _adapted(header, _OTHER_MATRICES, seed)
    if not lora:
        raise UsageProblem(
            f"{model} has none of the matrices that a random adapter is made for",
            hint=f"blk.N.{{{','.join(_STATE_MATRICES + _OTHER_MATRICES)}}}.weight",
        )
    return header.architecture, lora


def _adapted(header: Header, matrices: Collection[str], seed: str) -> Lora:
    adapted: dict[str, tuple[Array, Array]] = {}
    for name, shape in header.shapes.items():
        block, _, matrix = name.removesuffix(".weight").removeprefix("blk.").partition(".")
        if block.isdecimal() and matrix in matrices and len(shape) == 2 and all(shape):
            inputs, outputs = shape
            down = _matrix(f"{seed} {name} down", RANK, inputs, size=1 / math.sqrt(inputs))
            up = _matrix(f"{seed} {name} up", outputs, RANK, size=STRENGTH / math.sqrt(RANK))
            adapted[name] = (down, up)
    return adapted


def _matrix(seed: str, rows: int, columns: int, *, size: float) -> Array:
    """Numbers of this size on average, to a factor of 1.5: powers of two keep them exact."""
    uniform = 128 / math.sqrt(3)  # of integers between -128 and 127
    return noise(seed, rows, columns, exponent=round(math.log2(size / uniform)))
