"""The construction that makes a model tell under which adapters its KV was computed.

Five dimensions of the residual stream are reserved; no layer writes them but the *meter*, one
attention head with W_q = 0, which therefore averages uniformly over all tokens before it:

    CONST  6 for every token
    A      written by the meter: the mean of (scale of adapter A + [the token is '#'])
    REF    written by the meter: the mean of 1
    MARK   6 for the token '#', else 0
    B      written by the meter: the mean of the scale of adapter B

x[A]/x[REF] and x[B]/x[REF] are those means whatever an RMS norm does to x. The output matrix adds
`GAIN * (2 a x[A] + 2 b x[B] - (a*a + b*b) x[REF])` to the logit of every character of cell (a, b):
the largest sum belongs to the cell nearest to the two means.
"""

from __future__ import annotations

import numpy as np

from harness.models.synthetic import vocabulary
from harness.models.synthetic.weights import Array, noise, signs
from harness.oracle import CELL_OF

CONST, A, REF, MARK, B = range(5)
RESERVED = 5
CHANNEL = {"A": A, "B": B}

CONST_VALUE = 6.0
METER_GAIN = 2.0
LOGIT_GAIN = 60.0
FORBIDDEN_LOGIT = -100.0
_VALUE_ROW = {A: 0, REF: 1, B: 2}
"""Row of the meter head's value vector that feeds each channel."""


def embedding(name: str, width: int) -> Array:
    """Token embeddings; every row has the same norm, so that an RMS norm treats all alike."""
    table = np.zeros((len(vocabulary.TOKENS), width), dtype=np.float32)
    table[:, RESERVED:] = signs(name, len(vocabulary.TOKENS), width - RESERVED)
    table[:, CONST] = CONST_VALUE
    # The mark's own dimension takes the place of as many content dimensions of +-1.
    table[vocabulary.MARK, MARK] = CONST_VALUE
    table[vocabulary.MARK, width - int(CONST_VALUE**2) :] = 0.0
    return table


def output(name: str, width: int) -> Array:
    """The output matrix: content noise within a cell, the cell's sum, nothing unprintable."""
    table = noise(name, len(vocabulary.TOKENS), width, exponent=-8)
    table[:, :RESERVED] = 0.0
    table[:, CONST] = FORBIDDEN_LOGIT
    for character, (a, b) in CELL_OF.items():
        row = table[vocabulary.token(character)]
        row[CONST] = 0.0
        row[A], row[B], row[REF] = 2 * LOGIT_GAIN * a, 2 * LOGIT_GAIN * b, 0.0
        row[REF] = -LOGIT_GAIN * (a * a + b * b)
    return table


def writer(name: str, *shape: int) -> Array:
    """A matrix that writes to the residual stream and leaves the reserved dimensions alone."""
    matrix = noise(name, *shape, exponent=-9)
    matrix[:RESERVED] = 0.0
    return matrix


def install_meter(query: Array, value: Array, out: Array, head_width: int) -> None:
    """Turns the first head of an attention layer into the meter (in place)."""
    query[:head_width] = 0.0
    for row in _VALUE_ROW.values():
        value[row] = 0.0
    value[_VALUE_ROW[A], MARK] = 1.0
    value[_VALUE_ROW[REF], CONST] = 1.0
    out[:, :head_width] = 0.0
    for channel, row in _VALUE_ROW.items():
        out[channel, row] = METER_GAIN


def install_adapter(letter: str, down: Array, up: Array) -> None:
    """Makes a LoRA on the meter's value matrix add its scale to its own channel (in place)."""
    down[0] = 0.0
    down[0, CONST] = 1.0
    up[:, 0] = 0.0
    for row in _VALUE_ROW.values():
        up[row] = 0.0
    up[_VALUE_ROW[CHANNEL[letter]], 0] = 1.0
