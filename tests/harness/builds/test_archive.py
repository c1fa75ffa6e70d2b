"""What is unpacked of an archive, and what refuses one as a whole."""

from __future__ import annotations

import errno
import gzip
import io
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.builds.archive import BadArchive, unpack

SERVER = b"#!/bin/sh\necho version\n"
LIBRARY = b"\x7fELF" + bytes(range(256)) * 40


def tar_member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


class ZipMember(NamedTuple):
    name: str
    content: bytes = b""
    mode: int = stat.S_IFREG | 0o644


def zip_of(*members: ZipMember) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            zipped.writestr(info, content)
    return packed.getvalue()


def symlink(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return tar_member(name, type=tarfile.SYMTYPE, linkname=target)


def hard_link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return tar_member(name, type=tarfile.LNKTYPE, linkname=target)


TAR = tar_of(
    tar_member("./", type=tarfile.DIRTYPE, mode=0o755),
    tar_member("llama-b1/", type=tarfile.DIRTYPE, mode=0o755),
    symlink("llama-b1/libllama.so", "libllama.so.0"),
    symlink("llama-b1/libllama.so.0", "libllama.so.0.1"),
    tar_member("llama-b1/llama-server", SERVER, mode=0o755),
    tar_member("llama-b1/libllama.so.0.1", LIBRARY, mode=0o644),
    hard_link("llama-b1/server", "llama-b1/llama-server"),
    symlink("llama-b1/up", "../llama-b1/llama-server"),
)
ZIP = zip_of(
    ZipMember("llama-b1/", mode=stat.S_IFDIR | 0o755),
    ZipMember("llama-b1/libllama.so", b"libllama.so.0", stat.S_IFLNK | 0o777),
    ZipMember("llama-b1/libllama.so.0", b"libllama.so.0.1", stat.S_IFLNK | 0o777),
    ZipMember("llama-b1/llama-server", SERVER, stat.S_IFREG | 0o755),
    ZipMember("llama-b1/libllama.so.0.1", LIBRARY),
    ZipMember("llama-b1/server", SERVER, stat.S_IFREG | 0o755),
    ZipMember("llama-b1/up", b"../llama-b1/llama-server", stat.S_IFLNK | 0o777),
)


@pytest.fixture
def into(tmp_path: Path) -> Path:
    """An empty directory, in one where nothing else is but the archive."""
    directory = tmp_path / "around" / "into"
    directory.mkdir(parents=True)
    return directory


def unpacked(archive: bytes, into: Path) -> Path:
    """The directory, with what the archive holds."""
    file = into.parents[1] / "archive"
    file.write_bytes(archive)
    unpack(file, into)
    return into


def refusal(archive: bytes, into: Path) -> str:
    """Why it is refused: with nothing written, in the directory or beside it."""
    with pytest.raises(BadArchive) as raised:
        unpacked(archive, into)
    assert list(into.parent.rglob("*")) == [into]
    return raised.value.reason


@pytest.mark.parametrize("archive", [TAR, ZIP], ids=["tar", "zip"])
def test_files_links_and_executable_bits(archive: bytes, into: Path) -> None:
    top = unpacked(archive, into) / "llama-b1"
    assert {path.name for path in top.iterdir()} == {
        *("libllama.so", "libllama.so.0", "libllama.so.0.1", "llama-server", "server", "up")
    }
    assert (top / "libllama.so").readlink() == Path("libllama.so.0")
    assert (top / "libllama.so").read_bytes() == LIBRARY
    assert (top / "server").read_bytes() == (top / "up").read_bytes() == SERVER
    assert os.access(top / "llama-server", os.X_OK)
    assert not os.access(top / "libllama.so.0.1", os.X_OK)


def test_the_umask_is_the_users(into: Path) -> None:
    before = os.umask(0o077)
    try:
        top = unpacked(TAR, into) / "llama-b1"
    finally:
        os.umask(before)
    assert stat.S_IMODE((top / "llama-server").stat().st_mode) == 0o700


def test_a_zip_of_windows(into: Path) -> None:
    """Its names have other separators, and nothing says what is executable."""
    archive = zip_of(ZipMember(r"build\bin\llama-server", SERVER, mode=0))
    file = unpacked(archive, into) / "build" / "bin" / "llama-server"
    assert file.read_bytes() == SERVER


BAD_TARS: Mapping[str, tuple[list[tuple[tarfile.TarInfo, bytes]], str]] = {
    "up": ([tar_member("../evil", b"x")], "leads elsewhere"),
    "up_inside": ([tar_member("a/../../evil", b"x")], "leads elsewhere"),
    "absolute": ([tar_member("/evil", b"x")], "absolute"),
    "setuid": ([tar_member("a", b"x", mode=0o4755)], "setuid"),
    "setgid": ([tar_member("a", b"x", mode=0o2755)], "setuid"),
    "device": ([tar_member("a", type=tarfile.CHRTYPE)], "neither a file"),
    "fifo": ([tar_member("a", type=tarfile.FIFOTYPE)], "neither a file"),
    "symlink_up": ([symlink("a", "../evil")], "leads elsewhere"),
    "symlink_absolute": ([symlink("a", "/etc/passwd")], "leads elsewhere"),
    "symlink_nowhere": ([symlink("a", "")], "leads elsewhere"),
    # By name alone this one ends inside.
    "symlink_through_symlink": (
        [symlink("p/q/x", ".."), symlink("p/q/y", "x/../../evil")],
        "leads elsewhere",
    ),
    "through_symlink": ([symlink("a", "b"), tar_member("a/evil", b"x")], "no directory"),
    "through_symlink_of_other_case": ([symlink("A", "b"), tar_member("a/c", b"x")], "no directory"),
    "through_file": ([tar_member("a", b"x"), tar_member("a/b", b"x")], "no directory"),
    "over_symlink": ([symlink("a", "b"), tar_member("a", b"x")], "twice"),
    "twice": ([tar_member("a", b"x"), tar_member("./a", b"y")], "twice"),
    "hard_link_up": ([hard_link("a", "../evil")], "no file in it"),
    "hard_link_absolute": ([hard_link("a", "/etc/passwd")], "no file in it"),
    "hard_link_to_symlink": ([symlink("a", "b"), hard_link("c", "a")], "no file in it"),
    "no_name": ([tar_member("./", b"x")], "no name"),
}


@pytest.mark.parametrize("filters", [True, False], ids=["filters", "old_python"])
@pytest.mark.parametrize("bad", BAD_TARS)
def test_a_tar_that_is_refused(
    bad: str, filters: bool, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the rest of it is good, and on a Python whose tarfile refuses nothing itself."""
    if not filters:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    members, words = BAD_TARS[bad]
    archive = tar_of(tar_member("llama-b1/llama-server", SERVER, mode=0o755), *members)
    assert words in refusal(archive, into)


LINK = stat.S_IFLNK | 0o777
BAD_ZIPS: Mapping[str, tuple[ZipMember, str]] = {
    "up": (ZipMember("../evil", b"x"), "leads elsewhere"),
    "absolute": (ZipMember("/evil", b"x"), "absolute"),
    "windows_up": (ZipMember(r"..\evil", b"x"), "leads elsewhere"),
    "windows_absolute": (ZipMember(r"\evil", b"x"), "absolute"),
    "windows_host": (ZipMember(r"\\host\evil", b"x"), "absolute"),
    "windows_drive": (ZipMember(r"C:\evil", b"x"), "absolute"),
    "windows_drive_relative": (ZipMember("c:evil", b"x"), "absolute"),
    "symlink_up": (ZipMember("a", b"../evil", LINK), "leads elsewhere"),
    "symlink_absolute": (ZipMember("a", b"/etc/passwd", LINK), "leads elsewhere"),
    "symlink_to_nul": (ZipMember("a", b"a\0b", LINK), "leads elsewhere"),
    "symlink_long": (ZipMember("a", b"a" * 5000, LINK), "link to no name"),
    "setuid": (ZipMember("a", b"x", stat.S_IFREG | 0o4755), "setuid"),
    "device": (ZipMember("a", b"", stat.S_IFBLK | 0o644), "neither a file"),
    "twice": (ZipMember("./llama-server", b"x"), "twice"),
}


@pytest.mark.parametrize("bad", BAD_ZIPS)
def test_a_zip_that_is_refused(bad: str, into: Path) -> None:
    member, words = BAD_ZIPS[bad]
    assert words in refusal(zip_of(ZipMember("llama-server", SERVER), member), into)


def without_checksum(packed: bytes) -> bytes:
    return packed[:-8] + bytes(4) + packed[-4:]


def one_byte_changed(packed: bytes) -> bytes:
    """Of a file's content, in a zip that does not compress it."""
    return packed.replace(SERVER, SERVER[::-1])


def encrypted(packed: bytes) -> bytes:
    """Marked as such in the table at the end."""
    at = packed.rindex(b"PK\1\2") + 8
    return packed[:at] + b"\1" + packed[at + 1 :]


def stored() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr("llama-server", SERVER)
    return packed.getvalue()


DAMAGED: Mapping[str, Callable[[], bytes]] = {
    "tar_breaks_off": lambda: TAR[: len(TAR) // 2],
    "tar_without_its_last_byte": lambda: TAR[:-1],
    "tar_with_a_wrong_checksum": lambda: without_checksum(TAR),
    "tar_that_is_none": lambda: gzip.compress(b"no archive" * 1000),
    "tar_that_is_empty": lambda: gzip.compress(b""),
    "zip_breaks_off": lambda: ZIP[: len(ZIP) // 2],
    "zip_without_its_last_byte": lambda: ZIP[:-1],
    "zip_with_a_changed_file": lambda: one_byte_changed(stored()),
    "zip_with_a_password": lambda: encrypted(stored()),
    "page": lambda: b"<html>Log in</html>",
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_archive(damage: str, into: Path) -> None:
    assert refusal(DAMAGED[damage](), into)


@pytest.mark.parametrize("archive", [TAR, ZIP], ids=["tar", "zip"])
def test_no_damage_ends_in_another_error(archive: bytes, into: Path) -> None:
    """Each byte of it changed, one at a time."""
    for at in range(0, len(archive), 3):
        for byte in (0, 0xFF, archive[at] ^ 1):
            try:
                unpacked(archive[:at] + bytes([byte]) + archive[at + 1 :], into)
            except BadArchive:
                continue
            shutil.rmtree(into)
            into.mkdir()


@pytest.mark.parametrize("archive", [TAR, ZIP], ids=["tar", "zip"])
def test_an_archive_that_is_larger_than_the_disk(
    archive: bytes, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the archive's fault, and known before anything is written."""
    room = shutil.disk_usage(into)._replace(free=len(LIBRARY))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: room)
    with pytest.raises(OSError, match="No space left") as raised:
        unpacked(archive, into)
    assert raised.value.errno == errno.ENOSPC
    assert list(into.iterdir()) == []


def test_a_disk_that_fills_up_meanwhile(into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        unpacked(TAR, into)
