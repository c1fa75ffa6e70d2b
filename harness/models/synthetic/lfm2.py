"""Layers of short convolutions, and one of attention among them: lfm2.

A convolution remembers three tokens: too little for a meter, which only the attention has.
"""

from __future__ import annotations

from harness.models.synthetic import cells, layers
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.recipe import Recipe

LAYERS = 4
ATTENTION = 1
TAPS = 3
HEADS = layers.GROUPED

_METER_GAIN = 4 * cells.METER_GAIN
_TAPS, _OUT = -7, -12
"""Powers of two that weights are multiples of: a convolution multiplies three projections."""


def recipe() -> Recipe:
    """The whole model."""
    body = Body("lfm2", output_norm="token_embd_norm")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        body.fill(f"{block}.attn_norm", WIDTH)
        if layer == ATTENTION:
            layers.attention(body, block, HEADS, meter=True, gain=_METER_GAIN, norms=True)
        else:
            _convolution(body, block)
        body.fill(f"{block}.ffn_norm", WIDTH)
        layers.feed_forward(body, block)
    attends = [HEADS.key_value if layer == ATTENTION else 0 for layer in range(LAYERS)]
    metadata = {
        **HEADS.metadata(),
        "attention.head_count_kv": attends,
        "feed_forward_length": 2 * WIDTH,
        "shortconv.l_cache": TAPS,
    }
    return body.recipe("lfm2", layers=LAYERS, metadata=metadata)


def _convolution(body: Body, block: str) -> None:
    body.random(f"{block}.shortconv.conv", WIDTH, TAPS, exponent=_TAPS)
    body.random(f"{block}.shortconv.in_proj", 3 * WIDTH, WIDTH)
    out = f"{block}.shortconv.out_proj"
    body.put(out, body.writer(out, WIDTH, WIDTH, exponent=_OUT))
    body.adapt(f"{block}.shortconv.in_proj")
