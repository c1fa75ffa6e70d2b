"""Sliding-window attention in all layers but every sixth: gemma3."""

from __future__ import annotations

import numpy as np

from harness.models.synthetic import cells, layers
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.recipe import Recipe

LAYERS = 6
"""The pattern's period is fixed: fewer layers would all have a window."""
WINDOW = 128
HIDDEN = WIDTH

_POST_NORM, _OF_WINDOW, _OF_ALL = 4.0, 20.0, 60.0
"""What a layer's contribution is scaled to, and what the meters'; the embedding is by 8."""
_RELAY = 0.15


def recipe() -> Recipe:
    """The whole model."""
    body = Body("gemma3")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        full = layer == LAYERS - 1
        meter = full or layer == 0  # one that sees the window, and one that sees all
        body.fill(f"{block}.attn_norm", WIDTH)
        layers.attention(body, block, layers.GROUPED, meter=meter, relay=_RELAY * full, norms=True)
        scale = np.full(WIDTH, _POST_NORM)
        if meter:
            scale[list(cells.METER_ROW)] = _OF_ALL if full else _OF_WINDOW
        body.put(f"{block}.post_attention_norm", scale)
        body.fill(f"{block}.ffn_norm", WIDTH)
        layers.feed_forward(body, block, HIDDEN)
        body.fill(f"{block}.post_ffw_norm", WIDTH, value=_POST_NORM)
    metadata = {
        **layers.GROUPED.metadata(),
        "feed_forward_length": HIDDEN,
        "attention.sliding_window": WINDOW,
        "rope.freq_base": 10_000.0,
    }
    return body.recipe("gemma3", layers=LAYERS, metadata=metadata)
