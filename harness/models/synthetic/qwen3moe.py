"""A mixture of experts with full attention: qwen3moe."""

from __future__ import annotations

from harness.models.synthetic import layers
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.recipe import Recipe

LAYERS = 2
EXPERTS = layers.Experts()


def recipe() -> Recipe:
    """The whole model."""
    body = Body("qwen3moe")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        body.fill(f"{block}.attn_norm", WIDTH)
        layers.attention(body, block, layers.GROUPED, meter=layer == 0, norms=True)
        body.fill(f"{block}.ffn_norm", WIDTH)
        layers.mixture(body, block, EXPERTS)
    metadata = {
        **layers.GROUPED.metadata(),
        **EXPERTS.metadata(),
        "feed_forward_length": 2 * WIDTH,
    }
    return body.recipe("qwen3moe", layers=LAYERS, metadata=metadata)
