"""What is unpacked of an archive, and what is not."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness.builds.archive import BadArchive, unpack

SERVER = b"#!/bin/sh\necho version\n"
LIBRARY = b"\x7fELF" + bytes(range(256)) * 40


def member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=kind, linkname=target)


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def zip_of(*members: tuple[str, bytes], mode: int = 0o755) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFREG | mode) << 16
            zipped.writestr(info, content)
    return packed.getvalue()


TAR = tar_of(
    member("./", type=tarfile.DIRTYPE, mode=0o755),
    member("llama-b1/", type=tarfile.DIRTYPE, mode=0o755),
    link("llama-b1/libllama.so", "libllama.so.0"),
    link("llama-b1/libllama.so.0", "libllama.so.0.1"),
    member("llama-b1/llama-server", SERVER, mode=0o755),
    member("llama-b1/libllama.so.0.1", LIBRARY, mode=0o644),
    member(
        "llama-b1/server",
        type=tarfile.LNKTYPE,
        linkname="llama-b1/llama-server",
        mode=0o755,
    ),
)
ZIP = zip_of(("build/bin/llama-server", SERVER))


@pytest.fixture
def into(tmp_path: Path) -> Path:
    """An empty directory, in one where nothing else is."""
    directory = tmp_path / "around" / "into"
    directory.mkdir(parents=True)
    return directory


def unpacked(archive: bytes, into: Path) -> Path:
    """The directory, with what the archive holds."""
    file = into.parents[1] / "archive"
    file.write_bytes(archive)
    unpack(file, into)
    return into


def test_tar_with_links_and_executable_bits(into: Path) -> None:
    top = unpacked(TAR, into) / "llama-b1"
    assert (top / "libllama.so").readlink() == Path("libllama.so.0")
    assert (top / "libllama.so").read_bytes() == LIBRARY
    assert (top / "server").read_bytes() == SERVER
    assert os.access(top / "llama-server", os.X_OK)
    assert not os.access(top / "libllama.so.0.1", os.X_OK)


@pytest.mark.parametrize("name", ["build/bin/llama-server", r"build\bin\llama-server"])
def test_zip_with_executable_bits(into: Path, name: str) -> None:
    unpacked(zip_of((name, SERVER)), into)
    (file,) = (path for path in into.rglob("*") if path.is_file())
    assert file.read_bytes() == SERVER
    assert os.access(file, os.X_OK)


def test_zip_without_executable_bits(into: Path) -> None:
    unpacked(zip_of(("llama-server", SERVER), mode=0o644), into)
    assert not os.access(into / "llama-server", os.X_OK)


BAD_TARS: Mapping[str, list[tuple[tarfile.TarInfo, bytes]]] = {
    "up": [member("../evil", b"x")],
    "up_inside": [member("a/../../evil", b"x")],
    "device": [member("a", type=tarfile.CHRTYPE)],
    "fifo": [member("a", type=tarfile.FIFOTYPE)],
    "link_up": [link("a", "../evil")],
    "link_absolute": [link("a", "/etc/passwd")],
    "through_link": [link("a", ".."), member("a/evil", b"x")],
    "hard_link_up": [link("a", "../evil", tarfile.LNKTYPE)],
    "hard_link_absolute": [link("a", "/etc/passwd", tarfile.LNKTYPE)],
}


@pytest.mark.parametrize("bad", BAD_TARS)
def test_tar_that_leads_elsewhere_is_refused(bad: str, into: Path) -> None:
    with pytest.raises(BadArchive):
        unpacked(tar_of(*BAD_TARS[bad]), into)
    assert list(into.parent.iterdir()) == [into]


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", r"..\evil", r"\evil"])
def test_zip_that_leads_elsewhere_is_refused(name: str, into: Path) -> None:
    with pytest.raises(BadArchive, match="outside"):
        unpacked(zip_of(("llama-server", SERVER), (name, b"x")), into)
    assert [*into.parent.rglob("*")] == [into]


def test_tar_does_not_make_anybody_somebody_else(into: Path) -> None:
    """Nor is an absolute name one."""
    unpacked(tar_of(member("/server", SERVER, mode=0o6755)), into)
    assert not (into / "server").stat().st_mode & (stat.S_ISUID | stat.S_ISGID)


def one_byte_changed() -> bytes:
    """Of a file's content, in a zip that does not compress it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr("llama-server", SERVER)
    return packed.getvalue().replace(SERVER, SERVER[::-1])


DAMAGED: Mapping[str, Callable[[], bytes]] = {
    "tar_breaks_off": lambda: TAR[: len(TAR) // 2],
    "tar_without_its_last_byte": lambda: TAR[:-1],
    "tar_with_a_wrong_checksum": lambda: TAR[:-8] + bytes(4) + TAR[-4:],
    "tar_that_is_none": lambda: gzip.compress(b"no archive" * 1000),
    "zip_breaks_off": lambda: ZIP[: len(ZIP) // 2],
    "zip_without_its_last_byte": lambda: ZIP[:-1],
    "zip_with_a_changed_file": one_byte_changed,
    "page": lambda: b"<html>Log in</html>",
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_archive_is_refused(damage: str, into: Path) -> None:
    with pytest.raises(BadArchive) as refusal:
        unpacked(DAMAGED[damage](), into)
    assert refusal.value.reason
