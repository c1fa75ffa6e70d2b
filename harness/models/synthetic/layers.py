"""Layers that generated models share: attention, feed-forward networks, experts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.models.synthetic import cells
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.recipe import Value
from harness.models.synthetic.weights import Array

RMS_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class Heads:
    """The shape of an attention layer. A width of 32 lets K and V be quantised."""

    query: int = 2
    key_value: int = 2
    width: int = 32

    def metadata(self) -> dict[str, Value]:
        """The GGUF keys that say so."""
        return {
            "attention.head_count": self.query,
            "attention.head_count_kv": self.key_value,
            "attention.key_length": self.width,
            "attention.value_length": self.width,
            "attention.layer_norm_rms_epsilon": RMS_EPSILON,
            "rope.dimension_count": self.width,
        }


GROUPED = Heads(query=2, key_value=1)
"""Grouped-query attention: two query heads read one of keys and values."""


def attention(
    body: Body,
    block: str,
    heads: Heads,
    *,
    meter: bool = False,
    relay: float = 0.0,
    gain: float = cells.METER_GAIN,
    norms: bool = False,
) -> None:
    """Adds an attention layer. As a `meter` its first head averages uniformly.

    With `norms` queries and keys are normalised. A meter writes its channels with this `gain`, and
    `relay`s that much of what an earlier one wrote.
    """
    queries, values = heads.query * heads.width, heads.key_value * heads.width
    query = body.noise(f"{block}.attn_q", queries, WIDTH)
    value = body.noise(f"{block}.attn_v", values, WIDTH)
    out = body.writer(f"{block}.attn_output", WIDTH, queries)
    if meter:
        query[: heads.width] = 0.0
        cells.install_reader(value, relay=relay)
        cells.install_writer(out, heads.width, gain=gain)
    body.put(f"{block}.attn_q", query)
    body.random(f"{block}.attn_k", values, WIDTH)
    body.put(f"{block}.attn_v", value)
    body.put(f"{block}.attn_output", out)
    if norms:
        body.fill(f"{block}.attn_q_norm", heads.width)
        body.fill(f"{block}.attn_k_norm", heads.width)
    body.adapt(f"{block}.attn_q", untouched=[slice(heads.width)] if meter else [])
    body.adapt(f"{block}.attn_v")
    if meter:
        body.adapt_reader(f"{block}.attn_v")


def norm(body: Body, tensor: str) -> None:
    """Adds a norm that subtracts the mean: it has a bias too, here of 0."""
    body.fill(tensor, WIDTH)
    body.fill(f"{tensor}.bias", WIDTH, value=0.0)


def feed_forward(body: Body, block: str, hidden: int = 2 * WIDTH) -> None:
    """Adds a gated feed-forward network."""
    body.random(f"{block}.ffn_gate", hidden, WIDTH)
    body.random(f"{block}.ffn_up", hidden, WIDTH)
    body.put(f"{block}.ffn_down", body.writer(f"{block}.ffn_down", WIDTH, hidden))
    body.adapt_writer(f"{block}.ffn_down")


@dataclass(frozen=True, slots=True)
class Experts:
    """The shape of a mixture of experts: of each pair a token uses the one or the other."""

    hidden: int = 32

    @property
    def used(self) -> int:
        """How many a token uses."""
        return len(cells.ROUTES)

    @property
    def count(self) -> int:
        """How many there are."""
        return 2 * self.used

    def metadata(self) -> dict[str, Value]:
        """The GGUF keys that say so."""
        return {
            "expert_count": self.count,
            "expert_used_count": self.used,
            "expert_feed_forward_length": self.hidden,
        }


def mixture(body: Body, block: str, experts: Experts) -> None:
    """Adds a mixture of experts in place of a feed-forward network."""
    body.put(f"{block}.ffn_gate_inp", _routes(experts))
    body.random(f"{block}.ffn_gate_exps", experts.count, experts.hidden, WIDTH)
    body.random(f"{block}.ffn_up_exps", experts.count, experts.hidden, WIDTH)
    down = f"{block}.ffn_down_exps"
    body.put(down, body.writer(down, experts.count, WIDTH, experts.hidden))
    body.adapt_writer(down)


def shared_expert(body: Body, block: str, experts: Experts) -> None:
    """Adds an expert that every token uses beside the others."""
    body.random(f"{block}.ffn_gate_shexp", experts.hidden, WIDTH)
    body.random(f"{block}.ffn_up_shexp", experts.hidden, WIDTH)
    down = f"{block}.ffn_down_shexp"
    body.put(down, body.writer(down, WIDTH, experts.hidden))


def _routes(experts: Experts) -> Array:
    """The router: two choices between two experts, each by the sign of a dimension.

    A choice by what layers have computed would be close for some token of a long text, and then
    noise of 1e-6 another expert.
    """
    matrix = np.zeros((experts.count, WIDTH), dtype=np.float32)
    for pair, route in enumerate(cells.ROUTES):
        matrix[2 * pair, route], matrix[2 * pair + 1, route] = 2.0, -2.0
    return matrix
