"""Layers of a state space model, and one of attention among them: granitehybrid."""

from __future__ import annotations

from harness.models.synthetic import layers, state_space
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.recipe import Recipe

LAYERS = 4
ATTENTION = 1
HEADS = layers.GROUPED

_RELAY = 0.5


def recipe() -> Recipe:
    """The whole model."""
    body = Body("granitehybrid")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        body.fill(f"{block}.attn_norm", WIDTH)
        if layer == ATTENTION:
            layers.attention(body, block, HEADS, meter=True, relay=_RELAY)
        else:
            state_space.mixer(body, block, meter=layer == 0)
        body.fill(f"{block}.ffn_norm", WIDTH)
        layers.feed_forward(body, block)
    attends = [HEADS.key_value if layer == ATTENTION else 0 for layer in range(LAYERS)]
    metadata = {
        **HEADS.metadata(),
        **state_space.METADATA,
        "attention.head_count_kv": attends,
        "feed_forward_length": 2 * WIDTH,
        "residual_scale": 1.0,
        "logit_scale": 1.0,
    }
    return body.recipe("granitehybrid", layers=LAYERS, metadata=metadata)
