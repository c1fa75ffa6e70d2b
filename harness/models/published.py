"""Real models with an adapter, small enough for everybody, by the names `--llama-model` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.models.hub import fetch
from harness.models.hub_file import HubFile
from harness.models.random_lora import random_adapter
from harness.models.spec import Model
from harness.models.user import user_model


@dataclass(frozen=True, slots=True)
class Published:
    """A model on the Hugging Face hub and an adapter made for it."""

    model: HubFile
    lora: HubFile


def _stories(name: str, sha256: str, size: int | None = None) -> HubFile:
    """A file of the model that llama.cpp tests its adapters with."""
    revision = "b6dd737497465570b5f5e962dbc9d9454ed1e0eb"
    return HubFile("ggml-org/stories15M_MOE", revision, name, sha256, size)


_SHAKESPEARE = _stories(
    "moe_shakespeare15M.gguf",
    "d1e0617d7e10de960639d18a4620ec8c6bb56343f45692830d3634a1a3e1fe1a",
    16_364_896,
)
PUBLISHED: Mapping[str, Published] = {
    "stories15m-moe": Published(
        _stories(
            "stories15M_MOE-F16.gguf",
            "1240dfc1957df9f3550dd6c1d9e64b466fc2f452d8bc34bd4e45e1a1e2ca6055",
        ),
        _SHAKESPEARE,
    ),
    "stories15m-moe-q8": Published(
        _stories(
            "stories15M_MOE-Q8_0.gguf",
            "c7aa6863f9a4b3cdf19716e2c95622dcbd3bd06989324bf1ac8e60486ef8e881",
            39_390_272,
        ),
        _SHAKESPEARE,
    ),
}


def fetched(name: str) -> Model:
    """One of `PUBLISHED`: A is its own adapter, B a random one. Raises as `fetch` does."""
    found = PUBLISHED[name]
    path, lora = fetch(found.model), fetch(found.lora)
    model = user_model(path, [lora])
    return replace(
        model, name=name, adapters={**model.adapters, "B": random_adapter(model.file, "B")}
    )
