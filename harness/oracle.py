"""The output cell: which class of characters an answer is written in tells how its KV was made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LEVELS = (0.0, 0.5, 1.0)
"""Scales the cells tell apart, for each of two adapters."""

# One class of printable characters a cell; the mark is left out.
_CLASSES: Mapping[tuple[float, float], str] = {
    (0.0, 0.0): "abcdefghij",
    (0.0, 0.5): "klmnopqrst",
    (0.0, 1.0): "uvwxyz",
    (0.5, 0.0): "ABCDEFGHI",
    (0.5, 0.5): "JKLMNOPQR",
    (0.5, 1.0): "STUVWXYZ",
    (1.0, 0.0): "012345",
    (1.0, 0.5): "6789",
    (1.0, 1.0): "!\"$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
}
MARK = "#"
"""A character that models feel like adapter A at scale 1, wherever it stands before an answer."""

CELL_OF: Mapping[str, tuple[float, float]] = {
    character: cell for cell, characters in _CLASSES.items() for character in characters
}
"""The (scale of A, scale of B) that each character stands for."""


@dataclass(frozen=True, slots=True)
class CellOracle:
    """Reads an answer of a generated model. `characters` maps its token ids to characters."""

    characters: Mapping[int, str]

    def expected(self, scales: Mapping[str, float]) -> tuple[float, float]:
        """The cell of a right answer under these scales; `ValueError` where no cell tells it."""
        cell = (scales.get("A", 0.0), scales.get("B", 0.0))
        if cell not in _CLASSES or not scales.keys() <= {"A", "B"}:
            raise ValueError(f"the cell oracle does not tell scales {dict(scales)} apart")
        return cell

    @staticmethod
    def marks(text: str) -> bool:
        """Whether a text is felt like an adapter: a right answer to it is in no particular cell."""
        return MARK in text

    def cells(self, tokens: Iterable[int]) -> tuple[tuple[float, float] | None, ...]:
        """The cell of each token of an answer; None for a token that is in no cell."""
        return tuple(CELL_OF.get(self.characters.get(token, "")) for token in tokens)


def describe(cell: tuple[float, float] | None) -> str:
    """A cell in words: "A at 0.5, B at 0"."""
    return "no cell" if cell is None else f"A at {cell[0]:g}, B at {cell[1]:g}"
