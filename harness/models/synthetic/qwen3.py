"""Full attention with grouped queries and normalised heads: qwen3."""

from __future__ import annotations

from harness.models.synthetic import layers
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.recipe import Recipe

LAYERS = 2


def recipe() -> Recipe:
    """The whole model."""
    body = Body("qwen3")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        body.fill(f"{block}.attn_norm", WIDTH)
        layers.attention(body, block, layers.GROUPED, meter=layer == 0, norms=True)
        body.fill(f"{block}.ffn_norm", WIDTH)
        layers.feed_forward(body, block)
    metadata = {**layers.GROUPED.metadata(), "feed_forward_length": 2 * WIDTH}
    return body.recipe("qwen3", layers=LAYERS, metadata=metadata)
