"""A generated model while it is put together: its tensors, and those of its two adapters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from harness.models.synthetic import cells, vocabulary
from harness.models.synthetic.recipe import Lora, Recipe, Tensors, Value
from harness.models.synthetic.weights import Array, noise

WIDTH = 64
"""Of the residual stream."""
RANK = 4
LETTERS = ("A", "B")
CONTEXT = 65_536
_WEIGHTS, _LORA_WEIGHTS = -9, -8
"""Powers of two that weights are multiples of."""


class Body:
    """Tensors are named without their ending: `blk.0.attn_q` is `blk.0.attn_q.weight`.

    Shapes are numpy's: (outputs, inputs). `name` seeds all weights.
    """

    def __init__(self, name: str, *, output_norm: str | None = "output_norm") -> None:
        self.name = name
        self.tensors: Tensors = {}
        self.adapters: Mapping[str, Lora] = {letter: {} for letter in LETTERS}
        self.put("token_embd", cells.embedding(f"{name}/token_embd", WIDTH))
        if output_norm is not None:  # it generates
            self.fill(output_norm, WIDTH)
            self.put("output", cells.output(f"{name}/output", WIDTH))

    def put(self, tensor: str, array: ArrayLike) -> None:
        """Adds a tensor."""
        self.tensors[_full(tensor)] = np.ascontiguousarray(array, dtype=np.float32)

    def fill(self, tensor: str, *shape: int, value: float = 1.0) -> None:
        """Adds a tensor with the same number everywhere."""
        self.put(tensor, np.full(shape, value))

    def noise(self, tensor: str, *shape: int, exponent: int = _WEIGHTS) -> Array:
        """Weights for a tensor, not added yet: multiples of 2**exponent, at most 128 of them."""
        return noise(f"{self.name}/{tensor}", *shape, exponent=exponent)

    def random(self, tensor: str, *shape: int, exponent: int = _WEIGHTS) -> None:
        """Adds a tensor of such weights."""
        self.put(tensor, self.noise(tensor, *shape, exponent=exponent))

    def writer(self, tensor: str, *shape: int, exponent: int = _WEIGHTS) -> Array:
        """The same for a matrix that writes to the residual stream: the reserved rows are 0."""
        matrix = self.noise(tensor, *shape, exponent=exponent)
        matrix[..., : cells.RESERVED, :] = 0.0
        return matrix

    def adapt(self, tensor: str, *, untouched: Iterable[int | slice] = ()) -> None:
        """Both adapters adapt this tensor, all but its rows that must stay as they are.

        The tensor is (outputs, inputs), or (experts, outputs, inputs).
        """
        *lead, outputs, inputs = self.tensors[_full(tensor)].shape
        for letter in LETTERS:
            seed = f"{self.name}/{tensor}/{letter}/"
            a = noise(seed + "a", *lead, RANK, inputs, exponent=_LORA_WEIGHTS)
            b = noise(seed + "b", *lead, outputs, RANK, exponent=_LORA_WEIGHTS)
            for rows in untouched:
                b[..., rows, :] = 0.0
            self.adapters[letter][_full(tensor)] = (a, b)

    def adapt_writer(self, tensor: str) -> None:
        """The same of a matrix that writes to the residual stream."""
        self.adapt(tensor, untouched=[slice(cells.RESERVED)])

    def adapt_reader(self, tensor: str, first_row: int = 0, *, gain: float = 1.0) -> None:
        """Makes each adapter, on a tensor adapted before, felt by a meter that reads there."""
        for letter in LETTERS:
            a, b = self.adapters[letter][_full(tensor)]
            cells.install_adapter(letter, a, b, first_row, gain=gain)

    def adapt_embedding(self) -> None:
        """Makes both adapters felt in the embedding, where nothing else of a layer takes them."""
        for letter in LETTERS:
            self.adapters[letter][_full("token_embd")] = cells.embedding_adapter(
                letter, len(vocabulary.TOKENS), WIDTH, RANK
            )

    def recipe(self, architecture: str, *, layers: int, metadata: Mapping[str, Value]) -> Recipe:
        """The whole model: its keys are what all models say, and `metadata`."""
        return Recipe(
            architecture=architecture,
            metadata={
                "context_length": CONTEXT,
                "embedding_length": WIDTH,
                "block_count": layers,
                "vocab_size": len(vocabulary.TOKENS),
                **metadata,
            },
            tensors=self.tensors,
            adapters=self.adapters,
            adapter_metadata={"lora.alpha": float(RANK)},
            tokenizer_metadata=vocabulary.METADATA,
        )


def _full(tensor: str) -> str:
    """Biases and a few tensors of state space models are named as they are."""
    return tensor if tensor.endswith((".bias", ".ssm_a", ".ssm_d")) else f"{tensor}.weight"
