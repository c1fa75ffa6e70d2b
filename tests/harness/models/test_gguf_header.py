"""Reading the header of GGUF files, whole and damaged."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import gguf
import pytest
from gguf import GGUFValueType

from harness.models.gguf_header import read_header
from harness.models.synthetic.store import generated

MODEL = generated().file.path


def test_it_agrees_with_the_gguf_package() -> None:
    fields = gguf.GGUFReader(MODEL).fields
    expected = {
        name: None if field.types[0] is gguf.GGUFValueType.ARRAY else field.contents()
        for name, field in fields.items()
        if not name.startswith("GGUF.")
    }
    assert read_header(MODEL).metadata == expected


def test_every_type_is_read(tmp_path: Path) -> None:
    path = tmp_path / "types.gguf"
    writer = gguf.GGUFWriter(path, "some")
    for kind in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        getattr(writer, f"add_{kind}")(kind, 7)
    writer.add_float32("float32", 0.5)
    writer.add_float64("float64", 0.25)
    writer.add_bool("bool", True)
    writer.add_string("string", "text")
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("texts", ["a", "bb"])
    writer.add_string("last", "end")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    found = read_header(path).metadata
    assert {found[f"{sign}int{bits}"] for sign in ("", "u") for bits in (8, 16, 32, 64)} == {7}
    assert (found["float32"], found["float64"], found["bool"]) == (0.5, 0.25, True)
    assert (found["string"], found["last"]) == ("text", "end")
    assert (found["numbers"], found["texts"]) == (None, None)


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    whole = MODEL.read_bytes()
    path = tmp_path / "cut.gguf"
    for length in (*range(0, 6000, 97), len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"it is empty|it ends|it does not begin|are missing"):
            read_header(path)


def test_no_damage_of_the_header_is_a_surprise(tmp_path: Path) -> None:
    """A flipped byte is an error of this one kind, or harmless: never an endless loop."""
    whole = MODEL.read_bytes()
    path = tmp_path / "flipped.gguf"
    for position in range(0, 6000, 7):
        damaged = bytearray(whole[:20_000])  # most of the tensors are missing
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        with contextlib.suppress(ValueError):
            read_header(path)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("GGML and more text")
    with pytest.raises(ValueError, match="does not begin as one"):
        read_header(path)


def header(tensors: int, keys: int, rest: bytes) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", 3, tensors, keys) + rest + bytes(64)


def key(kind: GGUFValueType, rest: bytes) -> bytes:
    return struct.pack("<QcI", 1, b"k", kind) + rest


ABSURD = {
    "dimensions": header(1, 0, struct.pack("<QcI", 1, b"t", 200_000) + bytes(8 * 200_000)),
    "array_length": header(
        0, 1, key(GGUFValueType.ARRAY, struct.pack("<IQ", GGUFValueType.UINT64, 1 << 62))
    ),
    "text_length": header(0, 1, key(GGUFValueType.STRING, struct.pack("<Q", 1 << 63))),
    "texts_length": header(
        0, 1, key(GGUFValueType.ARRAY, struct.pack("<IQQ", GGUFValueType.STRING, 2, 1 << 63))
    ),
    "nested": header(
        0, 1, key(GGUFValueType.ARRAY, struct.pack("<IQ", GGUFValueType.ARRAY, 1) * 5000)
    ),
}


@pytest.mark.parametrize("absurd", ABSURD)
def test_absurd_numbers_are_refused_at_once(tmp_path: Path, absurd: str) -> None:
    path = tmp_path / "absurd.gguf"
    path.write_bytes(ABSURD[absurd])
    with pytest.raises(ValueError, match=r"makes no sense|it ends within its header"):
        read_header(path)
