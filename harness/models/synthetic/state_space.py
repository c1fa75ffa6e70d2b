"""The Mamba-2 mixer: a state space model that reads a sequence with a fixed amount of memory."""

from __future__ import annotations

import numpy as np

from harness.models.synthetic import cells
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.recipe import Value
from harness.models.synthetic.weights import Array

INNER, STATE, HEADS, GROUPS, TAPS = 128, 16, 4, 2, 4
_HEAD_WIDTH, _GROUP_WIDTH = INNER // HEADS, INNER // GROUPS

METADATA: dict[str, Value] = {
    "ssm.conv_kernel": TAPS,
    "ssm.inner_size": INNER,
    "ssm.state_size": STATE,
    "ssm.time_step_rank": HEADS,
    "ssm.group_count": GROUPS,
}

# Rows of ssm_in: the gate, the input, B and C of each group, the time step of each head.
_Z, _X, _B = 0, INNER, 2 * INNER
_C = _B + GROUPS * STATE
_DT = _C + GROUPS * STATE
_ROWS = _DT + HEADS

_TAPS = -7
"""Taps are multiples of this power of two: larger than other weights, since there are few."""
_STEP_BIAS = -7.0
"""softplus of it is the meter's time step, 9e-4."""
_DECAY = -0.5
"""A state fades by this times the step a token: the meter remembers some 2,000 tokens."""
_GAIN = 1.0
"""Of what a meter writes: a norm has made it large already."""
_INPUT_GAIN = 2.0
"""A convolution's SiLU leaves inputs this large as they are."""


def mixer(body: Body, block: str, *, meter: bool = False) -> None:
    """Adds a Mamba-2 mixer. As a `meter` its first group of heads averages, nearly uniformly."""
    matrix = body.noise(f"{block}.ssm_in", _ROWS, WIDTH)
    taps = body.noise(f"{block}.ssm_conv1d", INNER + 2 * GROUPS * STATE, TAPS, exponent=_TAPS)
    bias = body.noise(f"{block}.ssm_conv1d.bias", INNER + 2 * GROUPS * STATE)
    out = body.writer(f"{block}.ssm_out", WIDTH, INNER)
    step = np.array([0.0, 0.0, -2.0, -1.0])
    decay = np.array([-1.0, -1.0, -1.0, -4.0])
    skip = np.ones(HEADS)
    if meter:
        _install_meter(matrix, taps, bias)
        step[:GROUPS], decay[:GROUPS], skip[:GROUPS] = _STEP_BIAS, _DECAY, 0.0
        cells.install_writer(out, _GROUP_WIDTH, gain=_GAIN)
    body.put(f"{block}.ssm_in", matrix)
    body.put(f"{block}.ssm_conv1d", taps)
    body.put(f"{block}.ssm_conv1d.bias", bias)
    body.put(f"{block}.ssm_dt.bias", step)
    body.put(f"{block}.ssm_a", decay.reshape(HEADS, 1))
    body.put(f"{block}.ssm_d", skip.reshape(HEADS, 1))
    body.fill(f"{block}.ssm_norm", GROUPS, _GROUP_WIDTH)
    body.put(f"{block}.ssm_out", out)
    body.adapt(f"{block}.ssm_in", untouched=_meter_rows() if meter else [])
    if meter:
        body.adapt_reader(f"{block}.ssm_in", _X, gain=_INPUT_GAIN)


def _meter_rows() -> list[slice]:
    """Rows of ssm_in that belong to the first group of heads."""
    return [
        slice(_Z, _Z + _GROUP_WIDTH),
        slice(_X, _X + _GROUP_WIDTH),
        slice(_B, _B + STATE),
        slice(_C, _C + STATE),
        slice(_DT, _DT + HEADS // GROUPS),
    ]


def _install_meter(matrix: Array, taps: Array, bias: Array) -> None:
    """Gate, B and C are constant, the step has its bias alone, and a token sees only itself."""
    for rows in _meter_rows():
        matrix[rows] = 0.0
    for row in cells.METER_ROW.values():
        matrix[_Z + row, cells.CONST] = 1.0
    cells.install_reader(matrix, _X, gain=_INPUT_GAIN)
    matrix[_B : _B + STATE, cells.CONST] = 1.0
    matrix[_C : _C + STATE, cells.CONST] = 1.0
    for first, count in ((_X, _GROUP_WIDTH), (_B, STATE), (_C, STATE)):
        channels = slice(first - _X, first - _X + count)
        taps[channels] = 0.0
        taps[channels, -1] = 1.0
        bias[channels] = 0.0
