"""Checksums of files on disk."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def libraries_sha256(directory: Path) -> str | None:
    """Return one checksum of the shared libraries in a directory; None where there are none."""
    digest, found = hashlib.sha256(), False
    for library in sorted(directory.glob("*.so*")):
        if not library.is_symlink():
            digest.update(f"{library.name} {sha256_of(library)}\n".encode())
            found = True
    return digest.hexdigest() if found else None
