"""Exact pseudo-random weights: integers from a hash, scaled by powers of two.

No random generator of any library and no float reduction is involved, so that the bytes are the
same on every machine, with every version of numpy.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def noise(name: str, *shape: int, exponent: int) -> Array:
    """Uniform multiples of 2**exponent between -128 and 127 of them; `name` is the seed."""
    count = int(np.prod(shape))
    integers = np.frombuffer(hashlib.shake_256(name.encode()).digest(count), dtype=np.int8)
    return (integers.astype(np.float32) * np.float32(2.0**exponent)).reshape(shape)


def signs(name: str, *shape: int) -> Array:
    """+1 or -1 everywhere, by the hash of `name`: every row has the same norm, exactly."""
    return np.where(noise(name, *shape, exponent=0) < 0, np.float32(-1), np.float32(1))
