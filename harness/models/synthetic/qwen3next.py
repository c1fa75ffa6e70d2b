"""Layers of a gated delta net, one of full attention among them, and experts: qwen3next."""

from __future__ import annotations

import numpy as np

from harness.models.synthetic import cells, layers
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.recipe import Recipe
from harness.models.synthetic.weights import Array

LAYERS = 3
ATTENTION_EVERY = 2
HEADS = layers.GROUPED
EXPERTS = layers.Experts()

# The delta net: two heads of values share one of queries and keys.
_KEY_HEADS, _VALUE_HEADS, _HEAD_WIDTH, _TAPS = 1, 2, 32, 4
_VALUES = _VALUE_HEADS * _HEAD_WIDTH
_Q, _K, _V = 0, _HEAD_WIDTH, 2 * _HEAD_WIDTH
"""Rows of attn_qkv."""
_ROWS = _V + _VALUES

_TAP_WEIGHTS = -7
"""Taps are multiples of this power of two: larger than other weights, since there are few."""
_BETA = -1.5
"""The sigmoid of 5 times this is the meter's beta, 6e-4: it remembers some 1,700 tokens."""
_INPUT_GAIN = 4.0
"""A convolution's SiLU leaves inputs this large as they are."""
_RELAY = 0.4
_GAIN, _ATTENTION_GAIN = 0.5, 4 * cells.METER_GAIN
"""What the two meters write: the attention's is gated by a half, the other's is normalised."""


def recipe() -> Recipe:
    """The whole model."""
    body = Body("qwen3next")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        body.fill(f"{block}.attn_norm", WIDTH)
        if (layer + 1) % ATTENTION_EVERY:
            _delta_net(body, block, meter=layer == 0)
        else:
            _gated_attention(body, block)
        body.fill(f"{block}.post_attention_norm", WIDTH)
        layers.mixture(body, block, EXPERTS)
        body.random(f"{block}.ffn_gate_inp_shexp", WIDTH)
        layers.shared_expert(body, block, EXPERTS)
    metadata = {
        **HEADS.metadata(),
        **EXPERTS.metadata(),
        "expert_shared_feed_forward_length": EXPERTS.hidden,
        "feed_forward_length": 2 * WIDTH,
        "full_attention_interval": ATTENTION_EVERY,
        "ssm.conv_kernel": _TAPS,
        "ssm.inner_size": _VALUES,
        "ssm.state_size": _HEAD_WIDTH,
        "ssm.time_step_rank": _VALUE_HEADS,
        "ssm.group_count": _KEY_HEADS,
    }
    return body.recipe("qwen3next", layers=LAYERS, metadata=metadata)


def _delta_net(body: Body, block: str, *, meter: bool) -> None:
    """As a `meter` its first head averages, nearly uniformly.

    A state becomes `decay * state * (1 - beta k k') + beta v k'`. Where k is constant and nothing
    decays, that is `(1 - beta) * state + beta v` along k: a mean of v over some 1/beta tokens.
    """
    qkv = body.noise(f"{block}.attn_qkv", _ROWS, WIDTH)
    gate = body.noise(f"{block}.attn_gate", _VALUES, WIDTH)
    taps = body.noise(f"{block}.ssm_conv1d", _ROWS, _TAPS, exponent=_TAP_WEIGHTS)
    beta_alpha = body.noise(f"{block}.ssm_ba", 2 * _VALUE_HEADS, WIDTH)
    decay = np.array([-1.0, -0.25])
    out = body.writer(f"{block}.ssm_out", WIDTH, _VALUES)
    if meter:
        _install_meter(qkv, gate, taps, beta_alpha)
        decay[0] = 0.0
        cells.install_writer(out, _HEAD_WIDTH, gain=_GAIN)
    body.put(f"{block}.attn_qkv", qkv)
    body.put(f"{block}.attn_gate", gate)
    body.put(f"{block}.ssm_conv1d", taps)
    body.put(f"{block}.ssm_ba", beta_alpha)
    body.fill(f"{block}.ssm_dt.bias", _VALUE_HEADS, value=-2.0)
    body.put(f"{block}.ssm_a", decay)
    body.fill(f"{block}.ssm_norm", _HEAD_WIDTH)
    body.put(f"{block}.ssm_out", out)
    body.adapt(f"{block}.attn_qkv", untouched=_meter_rows() if meter else [])
    if meter:
        body.adapt_reader(f"{block}.attn_qkv", _V, gain=_INPUT_GAIN)


def _meter_rows() -> list[slice]:
    """Rows of attn_qkv that belong to the first head."""
    return [slice(first, first + _HEAD_WIDTH) for first in (_Q, _K, _V)]


def _install_meter(qkv: Array, gate: Array, taps: Array, beta_alpha: Array) -> None:
    """Gate, query, key and beta are constant, and a token sees only itself."""
    for rows in _meter_rows():
        qkv[rows] = 0.0
        taps[rows] = 0.0
        taps[rows, -1] = 1.0
    for first in (_Q, _K):
        qkv[first : first + _HEAD_WIDTH, cells.CONST] = 1.0
    cells.install_reader(qkv, _V, gain=_INPUT_GAIN)
    gate[:_HEAD_WIDTH] = 0.0
    gate[:_HEAD_WIDTH, cells.CONST] = 1.0
    beta_alpha[0] = 0.0
    beta_alpha[0, cells.CONST] = _BETA


def _gated_attention(body: Body, block: str) -> None:
    """Adds a meter: a head's queries stand before the gates of its values, which are a half."""
    rows = 2 * HEADS.width
    values = HEADS.key_value * HEADS.width
    query = body.noise(f"{block}.attn_q", HEADS.query * rows, WIDTH)
    query[:rows] = 0.0
    value = body.noise(f"{block}.attn_v", values, WIDTH)
    cells.install_reader(value, relay=_RELAY)
    out = body.writer(f"{block}.attn_output", WIDTH, HEADS.query * HEADS.width)
    cells.install_writer(out, HEADS.width, gain=_ATTENTION_GAIN)
    body.put(f"{block}.attn_q", query)
    body.random(f"{block}.attn_k", values, WIDTH)
    body.put(f"{block}.attn_v", value)
    body.put(f"{block}.attn_output", out)
    body.fill(f"{block}.attn_q_norm", HEADS.width)
    body.fill(f"{block}.attn_k_norm", HEADS.width)
    body.adapt(f"{block}.attn_q", untouched=[slice(rows)])
    body.adapt(f"{block}.attn_v")
    body.adapt_reader(f"{block}.attn_v")
