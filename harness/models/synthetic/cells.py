"""The construction that makes a model tell under which adapters its KV was computed.

Some dimensions of the residual stream are reserved; no layer writes them but a *meter*, a part of a
layer that averages over all tokens before: an attention head with W_q = 0, or a head of a state
space model whose gates are constant (`layers.py`, `state_space.py`).

    CONST   6 for every token
    A       written by the meter: the mean of (scale of adapter A + [the token is '#'])
    REF     written by the meter: the mean of 1
    MARK    6 for the token '#', else 0
    B       written by the meter: the mean of the scale of adapter B
    MARK_B  0, but for an adapter that can only be felt in the embedding
    ROUTES  1 or -1, by the token: what experts are chosen by, so that no choice is ever close

x[A]/x[REF] and x[B]/x[REF] are those means whatever an RMS norm does to x. The output matrix adds
`GAIN * (2 a x[A] + 2 b x[B] - (a*a + b*b) x[REF])` to the logit of every character of cell (a, b):
the largest sum belongs to the cell nearest to the two means.

A model that remembers in two ways has a meter in each: x[A]/x[REF] is then a mean of the two, so
that an answer is in another cell where either memory is all stale. The second meter *relays*: of
each token it also reads what the first one wrote there, so that an answer feels what was once wrong
in a memory that has forgotten it since.
"""

from __future__ import annotations

import numpy as np

from harness.models.synthetic import vocabulary
from harness.models.synthetic.weights import Array, noise, signs
from harness.oracle import CELL_OF

CONST, A, REF, MARK, B, MARK_B = range(6)
ROUTES = (6, 7)
RESERVED = 8
_CONTENT = 6
"""From here on an embedding is the token's own."""
CHANNEL = {"A": A, "B": B}
MARK_OF = {"A": MARK, "B": MARK_B}

CONST_VALUE = 6.0
METER_GAIN = 2.0
LOGIT_GAIN = 60.0
FORBIDDEN_LOGIT = -100.0
METER_ROW = {A: 0, REF: 1, B: 2}
"""Which of a meter's values feeds each channel."""
METER_READS = {A: MARK, REF: CONST, B: MARK_B}
"""What each of a meter's values reads; an adapter makes A's and B's read CONST too."""


def embedding(name: str, width: int) -> Array:
    """Token embeddings; every row has the same norm, so that an RMS norm treats all alike."""
    table = np.zeros((len(vocabulary.TOKENS), width), dtype=np.float32)
    table[:, _CONTENT:] = signs(name, len(vocabulary.TOKENS), width - _CONTENT)
    table[:, CONST] = CONST_VALUE
    # The mark's own dimension takes the place of as many content dimensions of +-1.
    table[vocabulary.MARK, MARK] = CONST_VALUE
    table[vocabulary.MARK, width - int(CONST_VALUE**2) :] = 0.0
    return table


def output(name: str, width: int) -> Array:
    """The output matrix: content noise within a cell, the cell's sum, nothing unprintable."""
    table = noise(name, len(vocabulary.TOKENS), width, exponent=-8)
    table[:, :RESERVED] = 0.0
    # Within a cell too the odds of characters follow the means: a single stale token shows.
    table[:, (A, B)] = noise(f"{name}/means", len(vocabulary.TOKENS), 2, exponent=-6)
    table[:, CONST] = FORBIDDEN_LOGIT
    for character, (a, b) in CELL_OF.items():
        row = table[vocabulary.token(character)]
        row[CONST] = 0.0
        row[A] += 2 * LOGIT_GAIN * a
        row[B] += 2 * LOGIT_GAIN * b
        row[REF] = -LOGIT_GAIN * (a * a + b * b)
    return table


def install_reader(
    matrix: Array, first_row: int = 0, *, gain: float = 1.0, relay: float = 0.0
) -> None:
    """Makes rows of a matrix give a meter's values, from `first_row` on (in place).

    `relay` is how much of the channels goes into them.
    """
    for channel, row in METER_ROW.items():
        matrix[first_row + row] = 0.0
        matrix[first_row + row, METER_READS[channel]] = gain
        matrix[first_row + row, channel] = relay


def install_writer(matrix: Array, columns: int, *, gain: float = METER_GAIN) -> None:
    """Makes a matrix write a meter's values, its first `columns` ones, to their channels."""
    matrix[:, :columns] = 0.0
    for channel, row in METER_ROW.items():
        matrix[channel, row] = gain


def install_adapter(
    letter: str, a: Array, b: Array, first_row: int = 0, *, gain: float = 1.0
) -> None:
    """Makes a LoRA on a reader's matrix add its scale to its own channel (in place)."""
    a[0] = 0.0
    a[0, CONST] = gain
    b[:, 0] = 0.0
    for row in METER_ROW.values():
        b[first_row + row] = 0.0
    b[first_row + METER_ROW[CHANNEL[letter]], 0] = 1.0


def embedding_adapter(letter: str, tokens: int, width: int, rank: int) -> tuple[Array, Array]:
    """A LoRA on the embedding that marks every token for its channel: b is `rank` wide there."""
    a = np.zeros((tokens, rank), dtype=np.float32)
    b = np.zeros((width, rank), dtype=np.float32)
    a[:, 0] = 1.0
    b[MARK_OF[letter], 0] = CONST_VALUE
    return a, b
