"""A recurrent model, with a state of a fixed size and no attention: rwkv7.

Its norms subtract the mean of what they read. Rows that add up to 0 do not feel that: of those that
must not, the column of a dimension that is always 0 has the negative sum of all the others.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.models.synthetic import cells, layers
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.recipe import Recipe
from harness.models.synthetic.weights import Array

LAYERS = 2
HEAD_WIDTH = WIDTH
"""The only one that GPUs have code for."""
HIDDEN = 2 * WIDTH
RANK = 8
"""Of the pairs of small matrices that gates are computed with."""

_ZERO = cells.MARK_B
"""What is 0 in the residual stream, and among the meter's values."""
_GAIN = 4 * cells.METER_GAIN
_INPUTS = 6
"""The mixtures of a token and the one before that r, w, k, v, a and g are computed from."""
_FADING = -7.0
"""A state fades by 0.6 times the sigmoid of it a token: the meter remembers some 1,800 tokens."""
_CONSTANTS = {"w0": -3.0, "a0": 0.0, "v0": 0.0, "k_k": 1.0, "k_a": 0.5, "r_k": 0.125}
_METER_CONSTANTS = {**_CONSTANTS, "w0": _FADING, "k_k": 0.0, "k_a": 0.0, "r_k": 0.0}
_LERP, _OUT = -8, -11
"""Powers of two that weights are multiples of: mixtures are even, and what is written squares."""


def recipe() -> Recipe:
    """The whole model."""
    body = Body("rwkv7")
    _balance(body.tensors["token_embd.weight"])
    _ignore_mean(body.tensors["output.weight"], slice(None))
    layers.norm(body, "token_embd_norm")
    layers.norm(body, "output_norm")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        layers.norm(body, f"{block}.attn_norm")
        _time_mix(body, f"{block}.time_mix", meter=layer == 0)
        layers.norm(body, f"{block}.attn_norm_2")
        _channel_mix(body, f"{block}.channel_mix")
    metadata = {
        "attention.head_count": 0,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.decay_lora_rank": RANK,
        "attention.iclr_lora_rank": RANK,
        "attention.value_residual_mix_lora_rank": RANK,
        "attention.gate_lora_rank": RANK,
        "feed_forward_length": HIDDEN,
        "token_shift_count": 2,
        "wkv.head_size": HEAD_WIDTH,
    }
    return body.recipe("rwkv7", layers=LAYERS, metadata=metadata)


def _balance(table: Array) -> None:
    """Flips as many signs of each token's content as make its mean 0."""
    for row in table:
        surplus = int(row.sum()) // 2
        content = row[cells.RESERVED :]
        content[np.flatnonzero(content == np.sign(surplus))[: abs(surplus)]] *= -1.0


def _ignore_mean(matrix: Array, rows: slice) -> None:
    """Makes rows add up to 0 by their `_ZERO` column (exactly: they are multiples of 2**-9)."""
    matrix[rows, _ZERO] = 0.0
    matrix[rows, _ZERO] = -matrix[rows].sum(axis=1)


def _time_mix(body: Body, mix: str, *, meter: bool) -> None:
    """Adds what reads the sequence. As a `meter` its only head averages, nearly uniformly.

    A state becomes `state * (w - kk (a * kk)') + v k'`. The meter's kk is 0, though its k is not.
    """
    matrices = {
        name: body.noise(f"{mix}_{name}", WIDTH, WIDTH) for name in ("receptance", "key", "value")
    }
    matrices["output"] = body.writer(f"{mix}_output", WIDTH, WIDTH)
    for gate in "wavg":
        matrices[f"{gate}1"] = body.noise(f"{mix}_{gate}1", RANK, WIDTH)
        matrices[f"{gate}2"] = body.noise(f"{mix}_{gate}2", WIDTH, RANK)
    lerp = body.noise(f"{mix}_lerp_fused", _INPUTS, 1, 1, WIDTH, exponent=_LERP)
    matrices["lerp_fused"] = lerp + np.float32(0.5)
    if meter:
        _install_meter(matrices)
    for name, matrix in matrices.items():
        body.put(f"{mix}_{name}", matrix)
    for name, number in (_METER_CONSTANTS if meter else _CONSTANTS).items():
        body.fill(f"{mix}_{name}", WIDTH, value=number)
    layers.norm(body, f"{mix}_ln")
    body.adapt(f"{mix}_value", untouched=[_ZERO] if meter else [])
    if meter:
        body.adapt_reader(f"{mix}_value")


def _install_meter(matrices: Mapping[str, Array]) -> None:
    """Receptance, key and w are constant, and what a meter reads is of one token."""
    matrices["lerp_fused"][..., : cells.RESERVED] = 0.0
    for name in ("receptance", "key"):
        matrices[name][:] = 0.0
        matrices[name][:, cells.CONST] = 0.125
    matrices["value"][_ZERO] = 0.0
    cells.install_reader(matrices["value"])
    cells.install_writer(matrices["output"], len(cells.METER_ROW), gain=_GAIN)
    _ignore_mean(matrices["output"], slice(cells.RESERVED))
    matrices["w2"][:] = 0.0
    matrices["g2"][: cells.RESERVED] = 2 / RANK  # one gate for all the meter's values


def _channel_mix(body: Body, mix: str) -> None:
    body.fill(f"{mix}_lerp_k", 1, 1, WIDTH, value=0.5)
    body.random(f"{mix}_key", HIDDEN, WIDTH)
    body.put(f"{mix}_value", body.writer(f"{mix}_value", WIDTH, HIDDEN, exponent=_OUT))
    body.adapt_writer(f"{mix}_value")
