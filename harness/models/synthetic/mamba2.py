"""A recurrent model, with a state of a fixed size and no attention: mamba2."""

from __future__ import annotations

from harness.models.synthetic import state_space
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.layers import RMS_EPSILON
from harness.models.synthetic.recipe import Recipe

LAYERS = 2
HEAD_WIDTH = 32
"""The width of heads that no layer has: llama.cpp takes quantised K and V only where it fits."""


def recipe() -> Recipe:
    """The whole model."""
    body = Body("mamba2")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        body.fill(f"{block}.attn_norm", WIDTH)
        state_space.mixer(body, block, meter=layer == 0)
    metadata = {
        **state_space.METADATA,
        "attention.head_count": state_space.HEADS,  # builds up to b9093 size the mixer by it
        "attention.key_length": HEAD_WIDTH,
        "attention.value_length": HEAD_WIDTH,
        "attention.layer_norm_rms_epsilon": RMS_EPSILON,
        "feed_forward_length": 0,
    }
    return body.recipe("mamba2", layers=LAYERS, metadata=metadata)
