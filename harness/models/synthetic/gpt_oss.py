"""Sliding-window attention with sinks in every other layer, and a mixture of experts: gpt-oss."""

from __future__ import annotations

from harness.models.synthetic import layers
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.recipe import Recipe

LAYERS = 4
WINDOW = 128
EXPERTS = layers.Experts()
HEADS = layers.GROUPED

_NO_SINK = -30.0
"""A logit that takes no attention away."""
_RELAY = 0.4


def recipe() -> Recipe:
    """The whole model."""
    body = Body("gpt-oss")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        body.fill(f"{block}.attn_norm", WIDTH)
        # One meter that sees the window, and one that sees all.
        layers.attention(body, block, HEADS, meter=layer in (0, 1), relay=_RELAY * (layer == 1))
        body.fill(f"{block}.attn_sinks", HEADS.query, value=_NO_SINK)
        body.fill(f"{block}.post_attention_norm", WIDTH)
        layers.mixture(body, block, EXPERTS)
        _biases(body, block)
    metadata = {
        **HEADS.metadata(),
        **EXPERTS.metadata(),
        "feed_forward_length": EXPERTS.hidden,
        "attention.sliding_window": WINDOW,
    }
    return body.recipe("gpt-oss", layers=LAYERS, metadata=metadata)


def _biases(body: Body, block: str) -> None:
    """The architecture has them everywhere; here they are 0."""
    values = HEADS.key_value * HEADS.width
    sizes = {
        "attn_q": (HEADS.query * HEADS.width,),
        "attn_k": (values,),
        "attn_v": (values,),
        "attn_output": (WIDTH,),
        "ffn_gate_inp": (EXPERTS.count,),
        "ffn_gate_exps": (EXPERTS.count, EXPERTS.hidden),
        "ffn_up_exps": (EXPERTS.count, EXPERTS.hidden),
        "ffn_down_exps": (EXPERTS.count, WIDTH),
    }
    for tensor, shape in sizes.items():
        body.fill(f"{block}.{tensor}.bias", *shape, value=0.0)
