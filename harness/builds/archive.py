"""Unpacking what was downloaded: nothing leaves the directory it is unpacked into."""

from __future__ import annotations

import gzip
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

_GZIP, _ZIP = b"\x1f\x8b", b"PK"
_READ_BYTES = 1 << 20
_SAID = {
    EOFError: "it breaks off",
    NotImplementedError: "it is packed in an unusual way",
    RuntimeError: "it is encrypted",
}


class BadArchive(Exception):
    """An archive is damaged, or would write where it must not; the message says how."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def unpack(archive: Path, into: Path) -> None:
    """Unpacks a .tar.gz or .zip, told apart by their first bytes, into an existing directory.

    Raises `BadArchive` where it is damaged or would leave the directory; `OSError` where the disk
    fails. The directory may hold a part then.
    """
    with archive.open("rb") as file:
        start = file.read(2)
    if start not in (_GZIP, _ZIP):
        raise BadArchive("it is neither a .tar.gz nor a .zip")
    try:
        if start == _GZIP:
            _unpack_tar(archive, into)
        else:
            _unpack_zip(archive, into)
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error) as error:
        raise BadArchive(str(error)) from None
    except (EOFError, NotImplementedError, RuntimeError) as error:
        raise BadArchive(_SAID.get(type(error), str(error))) from None
    except ValueError as error:  # numbers and names in headers that are neither
        raise BadArchive(f"it is damaged: {error}") from None


def _unpack_tar(archive: Path, into: Path) -> None:
    """Python's own filter refuses what leads elsewhere, devices and the like."""
    with gzip.open(archive) as plain, tarfile.open(fileobj=plain, mode="r:") as tar:
        tar.extractall(into, filter="data")
        while plain.read(_READ_BYTES):
            """Up to the end, where the checksum is."""


def _unpack_zip(archive: Path, into: Path) -> None:
    """Links in it become files with the name they lead to; no release had any so far."""
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            path = PurePosixPath(info.filename.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts:
                raise BadArchive(f"{info.filename!r} is outside of it")
        for info in zipped.infolist():
            file = Path(zipped.extract(info, into))
            if (info.external_attr >> 16) & stat.S_IXUSR and file.is_file():
                file.chmod(file.stat().st_mode | 0o111)
