"""Unpacking what was downloaded: everything inside one directory, or nothing at all."""

from __future__ import annotations

import errno
import gzip
import os
import re
import shutil
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path, PurePosixPath
from typing import IO

_GZIP, _ZIP = b"\x1f\x8b", b"PK"
_DRIVE = re.compile(r"[A-Za-z]:")
_LONGEST_TARGET = 4096
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_ENCRYPTED = 0x1
_READ_BYTES = 1 << 20


class BadArchive(Exception):
    """An archive is damaged, or would write where it must not; the message says how."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Kind(Enum):
    FILE = auto()
    DIRECTORY = auto()
    SYMLINK = auto()
    HARD_LINK = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One thing in an archive, whatever kind of archive it is."""

    path: PurePosixPath
    kind: _Kind
    mode: int = 0
    size: int = 0
    target: str = ""
    """Of a link: of a symbolic one from where it stands, of a hard one from the top."""
    open: Callable[[], IO[bytes]]


def unpack(archive: Path, into: Path) -> None:
    """Unpacks a .tar.gz or .zip, told apart by their first bytes, into an existing directory.

    Raises `BadArchive` before anything is written where it is damaged or holds anything but files,
    directories and links that stay inside; `OSError` where the disk fails or has too little room,
    after which the directory may hold a part. Executable bits are kept, owners and times are not.
    """
    with _damage(), archive.open("rb") as file:
        start = file.read(2)
        file.seek(0)
        if start == _GZIP:
            with gzip.open(file) as plain, tarfile.open(fileobj=plain, mode="r:") as tar:
                entries = _checked([*_of_tar(tar, plain)], into)
                _filter(tar, into)
                _write(entries, into)
        elif start == _ZIP:
            with zipfile.ZipFile(file) as zipped:
                entries = _checked([*_of_zip(zipped)], into)
                _check_sums(zipped)
                _write(entries, into)
        else:
            raise BadArchive("neither a .tar.gz nor a .zip")


@contextmanager
def _damage() -> Iterator[None]:
    """What the libraries raise for archives that are no archives, in one word."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error) as error:
        raise BadArchive(f"damaged: {error}") from None
    except EOFError:
        raise BadArchive("damaged: it breaks off") from None
    except (ValueError, IndexError, OverflowError, struct.error, NotImplementedError) as error:
        # Numbers and names in headers that are neither.
        raise BadArchive(f"damaged: {type(error).__name__}") from None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # A place in the file that a header gave, before its beginning.
        raise BadArchive("damaged: it leads out of itself") from None


def _of_tar(tar: tarfile.TarFile, plain: gzip.GzipFile) -> Iterator[_Entry]:
    members = tar.getmembers()
    while plain.read(_READ_BYTES):
        """Up to the end, where the checksum is."""
    for member in members:
        entry = _tar_entry(tar, member)
        if entry is not None:
            yield entry


def _filter(tar: tarfile.TarFile, into: Path) -> None:
    """A second opinion; on Python 3.11.0 to 3.11.3 there is only ours, which is the stricter."""
    if hasattr(tarfile, "data_filter"):
        for member in tar.getmembers():
            tarfile.data_filter(member, str(into))


def _tar_entry(tar: tarfile.TarFile, member: tarfile.TarInfo) -> _Entry | None:
    kinds = (
        (member.isreg(), _Kind.FILE),
        (member.isdir(), _Kind.DIRECTORY),
        (member.issym(), _Kind.SYMLINK),
        (member.islnk(), _Kind.HARD_LINK),
    )
    kind = next((kind for fits, kind in kinds if fits), None)
    if kind is None:
        raise BadArchive(f"{member.name!r} is neither a file, a directory nor a link")

    def content() -> IO[bytes]:
        found = tar.extractfile(member)
        if found is None:
            raise BadArchive(f"{member.name!r} has no content")
        return found

    return _entry(
        member.name,
        kind,
        mode=member.mode,
        size=member.size if kind is _Kind.FILE else 0,
        target=member.linkname,
        content=content,
    )


def _of_zip(zipped: zipfile.ZipFile) -> Iterator[_Entry]:
    for info in zipped.infolist():
        if info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
            raise BadArchive(f"{info.filename!r} is encrypted, or packed in an unusual way")
        entry = _zip_entry(zipped, info)
        if entry is not None:
            yield entry


def _zip_entry(zipped: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Entry | None:
    # Those made on Windows say nothing here, and may have its separators in names.
    mode = info.external_attr >> 16
    name = info.filename.replace("\\", "/")
    what = stat.S_IFMT(mode)
    kinds = {0: _Kind.FILE, stat.S_IFREG: _Kind.FILE, stat.S_IFLNK: _Kind.SYMLINK}
    kind = _Kind.DIRECTORY if name.endswith("/") or what == stat.S_IFDIR else kinds.get(what)
    if kind is None:
        raise BadArchive(f"{name!r} is neither a file, a directory nor a link")
    target = ""
    if kind is _Kind.SYMLINK:
        if info.file_size > _LONGEST_TARGET:
            raise BadArchive(f"{name!r} is a link to no name")
        target = os.fsdecode(zipped.read(info))
    if _DRIVE.match(name):
        raise BadArchive(f"{name!r} is an absolute name")
    return _entry(
        name,
        kind,
        mode=mode,
        size=info.file_size if kind is _Kind.FILE else 0,
        target=target,
        content=lambda: zipped.open(info),
    )


def _entry(
    name: str, kind: _Kind, *, mode: int, size: int, target: str, content: Callable[[], IO[bytes]]
) -> _Entry | None:
    """None for the top itself, which many archives have as `./`."""
    path = PurePosixPath(name)
    if path.is_absolute():
        raise BadArchive(f"{name!r} is an absolute name")
    if ".." in path.parts or "\0" in name:
        raise BadArchive(f"{name!r} leads elsewhere")
    if mode & (stat.S_ISUID | stat.S_ISGID):
        raise BadArchive(f"{name!r} would run as somebody else (setuid)")
    if not path.parts:
        if kind is _Kind.DIRECTORY:
            return None
        raise BadArchive(f"{name!r} is no name of a file")
    return _Entry(path=path, kind=kind, mode=mode, size=size, target=target, open=content)


def _checked(entries: list[_Entry], into: Path) -> list[_Entry]:
    """The same, where there is room for them and none leads out of, or stands in, another."""
    kinds: dict[str, _Kind] = {}
    for entry in entries:
        key = _key(entry.path)
        if key in kinds and not (entry.kind is kinds[key] is _Kind.DIRECTORY):
            raise BadArchive(f"{str(entry.path)!r} is in it twice")
        kinds[key] = entry.kind
    for entry in entries:
        for parent in entry.path.parents:
            if kinds.get(_key(parent), _Kind.DIRECTORY) is not _Kind.DIRECTORY:
                raise BadArchive(f"{str(entry.path)!r} is in something that is no directory")
        if entry.kind is _Kind.SYMLINK:
            _check_symlink(entry, kinds)
        if entry.kind is _Kind.HARD_LINK:
            _check_hard_link(entry, kinds)
    if sum(entry.size for entry in entries) > shutil.disk_usage(into).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return entries


def _check_symlink(entry: _Entry, kinds: dict[str, _Kind]) -> None:
    """Its way is followed by name alone, so none of it but the end may be a link itself."""
    target = PurePosixPath(entry.target)
    bad = BadArchive(f"{str(entry.path)!r} is a link that leads elsewhere: {entry.target!r}")
    if target.is_absolute() or not target.parts or "\0" in entry.target:
        raise bad
    here = entry.path.parent
    for part in target.parts:
        if kinds.get(_key(here)) is _Kind.SYMLINK:
            raise bad
        if part == ".." and not here.parts:
            raise bad
        here = here.parent if part == ".." else here / part


def _check_hard_link(entry: _Entry, kinds: dict[str, _Kind]) -> None:
    target = PurePosixPath(entry.target)
    if ".." in target.parts or kinds.get(_key(target)) is not _Kind.FILE:
        raise BadArchive(f"{str(entry.path)!r} is a link to no file in it: {entry.target!r}")


def _key(path: PurePosixPath) -> str:
    """The same for all names that some file system takes for one."""
    return unicodedata.normalize("NFKC", str(path)).casefold()


def _check_sums(zipped: zipfile.ZipFile) -> None:
    if damaged := zipped.testzip():
        raise BadArchive(f"damaged: {damaged!r} has a wrong checksum")


def _write(entries: list[_Entry], into: Path) -> None:
    """Links come last, so that nothing is written through one."""
    order = [_Kind.DIRECTORY, _Kind.FILE, _Kind.HARD_LINK, _Kind.SYMLINK]
    for entry in sorted(entries, key=lambda entry: order.index(entry.kind)):
        path = into / entry.path
        (path if entry.kind is _Kind.DIRECTORY else path.parent).mkdir(parents=True, exist_ok=True)
        if entry.kind is _Kind.FILE:
            _write_file(entry, path)
        elif entry.kind is _Kind.HARD_LINK:
            path.hardlink_to(into / entry.target)
        elif entry.kind is _Kind.SYMLINK:
            path.symlink_to(entry.target)


def _write_file(entry: _Entry, path: Path) -> None:
    with entry.open() as content, path.open("xb") as file:  # never over anything
        shutil.copyfileobj(content, file, _READ_BYTES)
    if entry.mode & stat.S_IXUSR:
        # Whoever may read it may run it; who may read it the user's umask says.
        mode = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode | (mode & 0o444) >> 2)
