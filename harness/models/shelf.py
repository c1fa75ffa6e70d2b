"""Model files the harness makes, on disk: written once, found again by name, checked."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import platformdirs

from harness.errors import UsageProblem
from harness.files import sha256_of
from harness.models.spec import ModelFile

_MANIFEST = "sha256.json"


def cache_dir() -> Path:
    """Where made files are kept: `llama-cache-harness` in the user's cache directory."""
    return platformdirs.user_cache_path("llama-cache-harness") / "models"


def content_key(sources: Iterable[Path]) -> str:
    """Part of a name that changes when the bytes may: with their sources, or the GGUF writer."""
    digest = hashlib.sha256(importlib.metadata.version("gguf").encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def kept(
    name: str, write: Callable[[Path], None], directory: Path | None = None
) -> dict[str, ModelFile]:
    """The files `name` stands for, by stem; where they are not there whole, `write` is called.

    It is given a directory to write its `*.gguf` files in. `directory` is the cache to use. Raises
    `UsageProblem` when it cannot be written.
    """
    home = (directory or cache_dir()) / name
    try:
        files = _verified(home)
        if files is None:
            _write(write, home)
            files = _verified(home)
    except OSError as error:
        raise UsageProblem(
            f"what the harness generates cannot be kept in {home}: {error.strerror}",
            hint="XDG_CACHE_HOME names another place",
        ) from None
    if files is None:
        raise UsageProblem(f"what was generated in {home} does not stay as it was written")
    return files


def _verified(home: Path) -> dict[str, ModelFile] | None:
    """The files in `home` if all are there and as they were written."""
    try:
        manifest = json.loads((home / _MANIFEST).read_text())
        found = {name: sha256_of(home / f"{name}.gguf") for name in manifest}
    except (FileNotFoundError, ValueError, TypeError):
        return None
    if not found or found != manifest:
        return None
    return {name: ModelFile(home / f"{name}.gguf", sha256) for name, sha256 in found.items()}


def _write(write: Callable[[Path], None], home: Path) -> None:
    """Writes everything beside, then moves it in place as one: others never see a part."""
    home.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
    try:
        write(beside)
        manifest = {path.stem: sha256_of(path) for path in sorted(beside.glob("*.gguf"))}
        (beside / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        _move_in_place(beside, home)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _move_in_place(beside: Path, home: Path) -> None:
    try:
        beside.rename(home)
    except OSError:
        if _verified(home) is not None:
            return  # somebody else was faster, with the same bytes
        shutil.rmtree(home, ignore_errors=True)  # damaged
        beside.rename(home)
