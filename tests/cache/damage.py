"""Damage done to a slot file on disk, as a full disk, a bad copy or a bad disk does it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

# A file starts with a magic number, a version, and the number of numbers that list its tokens; its
# last byte is of the last token's KV.
_MAGIC_BYTES = 4


def empty(path: Path) -> None:
    """Leaves nothing of it."""
    path.write_bytes(b"")


def halve(path: Path) -> None:
    """Cuts it in half."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def cut_last_byte(path: Path) -> None:
    """Cuts the last byte off."""
    path.write_bytes(path.read_bytes()[:-1])


def change_magic(path: Path) -> None:
    """Makes it say that it is no slot file."""
    content = path.read_bytes()
    path.write_bytes(bytes(byte ^ 0xFF for byte in content[:_MAGIC_BYTES]) + content[_MAGIC_BYTES:])


def empty_cells(path: Path) -> None:
    """Makes its KV one of no cells, while its tokens are as many as before."""
    _write_number(path, _after_tokens(path) + 4, 0)


def change_position(path: Path) -> None:
    """Makes the first cell one of a position that none can have."""
    _write_number(path, _after_tokens(path) + 8, 0xFFFFFFFF)


def _after_tokens(path: Path) -> int:
    """Where the KV begins: the number of streams, that of cells, and the position of each cell."""
    (tokens,) = struct.unpack_from("<I", path.read_bytes(), 8)
    return 12 + 4 * int(tokens)


def _write_number(path: Path, at: int, number: int) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:at] + struct.pack("<I", number) + content[at + 4 :])


NOTICEABLE: Mapping[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "empty": empty,
    "half": halve,
    "last_byte": cut_last_byte,
    "magic": change_magic,
    "cells": empty_cells,
    "position": change_position,
}
"""Damage that a server can notice without a checksum, by name."""


def flip_last_bit(path: Path) -> None:
    """Changes one bit of the KV of the last token: nothing but a checksum tells."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def replace_tokens(path: Path, tokens: Sequence[int], others: Sequence[int]) -> bool:
    """Replaces the list of tokens; whether there is exactly one such list.

    Tokens are listed as 32-bit integers in every format so far.
    """
    content = path.read_bytes()
    listed, wanted = (np.asarray(ids, dtype="<i4").tobytes() for ids in (tokens, others))
    if content.count(listed) != 1 or len(listed) != len(wanted):
        return False
    path.write_bytes(content.replace(listed, wanted))
    return True
