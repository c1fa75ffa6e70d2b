"""Attention and a state space model side by side in each layer: falcon-h1."""

from __future__ import annotations

import numpy as np

from harness.models.synthetic import layers, state_space
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.recipe import Recipe

LAYERS = 2
HEADS = layers.GROUPED

_RELAY = 0.3


def recipe() -> Recipe:
    """The whole model."""
    body = Body("falcon-h1")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        body.fill(f"{block}.attn_norm", WIDTH)
        layers.attention(body, block, HEADS, meter=True, relay=_RELAY * layer)
        state_space.mixer(body, block, meter=layer == 0)
        body.tensors[f"{block}.ffn_norm"] = np.ones(WIDTH, dtype=np.float32)  # no ending here
        layers.feed_forward(body, block)
    metadata = {
        **HEADS.metadata(),
        **state_space.METADATA,
        "feed_forward_length": 2 * WIDTH,
    }
    return body.recipe("falcon-h1", layers=LAYERS, metadata=metadata)
