"""What a scenario needs to know of a model: its files, its memory, how its answers are judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.memory import Memory
from harness.oracle import CellOracle


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A GGUF file and the sha256 of its bytes."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class TrainedContext:
    """How many tokens a model was trained to see, and the GGUF key that says so."""

    key: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A base model and its adapters, by the letter scenarios call them: A, B."""

    name: str
    file: ModelFile
    adapters: Mapping[str, ModelFile]
    memory: Memory
    oracle: CellOracle | None
    """Says from an answer under which adapters it was computed; None for a real model."""
    trained: TrainedContext | None = None
    """None where it is as much as any scenario needs."""
