"""Damage to a file of known bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.cache.damage import NOTICEABLE, flip_last_bit, replace_tokens

TOKENS = (7, 300, 70_000)
CONTENT = b"GGSQ" + b"\x02\x00\x00\x00" + np.asarray(TOKENS, dtype="<i4").tobytes() + b"KV" * 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "slot"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        ("empty", b""),
        ("half", CONTENT[:15]),
        ("last_byte", CONTENT[:-1]),
        ("magic", bytes(byte ^ 0xFF for byte in b"GGSQ") + CONTENT[4:]),
    ],
)
def test_what_is_left(path: Path, damage: str, left: bytes) -> None:
    NOTICEABLE[damage](path)
    assert path.read_bytes() == left


def test_nothing_is_left(path: Path) -> None:
    NOTICEABLE["missing"](path)
    assert not path.exists()


def test_one_bit(path: Path) -> None:
    flip_last_bit(path)
    assert path.read_bytes() == CONTENT[:-1] + b"W"


def test_another_token(path: Path) -> None:
    assert replace_tokens(path, TOKENS, (7, 301, 70_000))
    changed = path.read_bytes()
    assert len(changed) == len(CONTENT)
    assert [i for i, byte in enumerate(changed) if byte != CONTENT[i]] == [12]


@pytest.mark.parametrize("tokens", [(7, 301), (1, 2, 3)])
def test_tokens_that_are_not_listed(path: Path, tokens: tuple[int, ...]) -> None:
    assert not replace_tokens(path, tokens, tokens)
    assert path.read_bytes() == CONTENT


def test_tokens_that_are_listed_twice(path: Path) -> None:
    path.write_bytes(CONTENT * 2)
    assert not replace_tokens(path, TOKENS, TOKENS)


def test_as_many_tokens_as_before(path: Path) -> None:
    assert not replace_tokens(path, TOKENS, TOKENS[:2])
    assert path.read_bytes() == CONTENT


def test_cells_and_positions(path: Path) -> None:
    """After the list of tokens: streams, cells, and the position of the first cell."""
    header = struct.pack("<4sII", b"GGSQ", 2, len(TOKENS)) + np.asarray(TOKENS, "<i4").tobytes()
    path.write_bytes(header + struct.pack("<III", 1, 3, 0) + b"KV")
    NOTICEABLE["cells"](path)
    assert path.read_bytes() == header + struct.pack("<III", 1, 0, 0) + b"KV"
    NOTICEABLE["position"](path)
    assert path.read_bytes() == header + struct.pack("<III", 1, 0, 0xFFFFFFFF) + b"KV"
