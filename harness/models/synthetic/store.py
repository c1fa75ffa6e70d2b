"""Generated models on disk: written once, found again by what they are made of, checked."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import platformdirs

from harness import oracle
from harness.errors import UsageProblem
from harness.files import sha256_of
from harness.memory import Memory
from harness.models.spec import Model, ModelFile
from harness.models.synthetic import dense, vocabulary
from harness.models.synthetic.recipe import Recipe, write_adapter, write_model

KINDS: Mapping[Memory, Callable[[], Recipe]] = {Memory.DENSE: dense.recipe}
"""One recipe a memory kind."""

_MANIFEST = "sha256.json"


def cache_dir() -> Path:
    """Where generated models are kept: `llama-cache-harness` in the user's cache directory."""
    return platformdirs.user_cache_path("llama-cache-harness") / "models"


def generated(memory: Memory = Memory.DENSE, directory: Path | None = None) -> Model:
    """The generated model of a memory kind, from the cache or written now.

    `directory` is the cache to use. Raises `UsageProblem` when it cannot be written.
    """
    files = _files(str(memory), KINDS[memory], directory)
    return Model(
        name=f"generated {memory}",
        file=files.pop("model"),
        adapters=files,
        memory=memory,
        oracle=vocabulary.oracle(),
    )


def stranger(directory: Path | None = None) -> ModelFile:
    """A model whose slot files no other model can take: it has three layers.

    Raises as `generated` does.
    """
    return _files("stranger", lambda: dense.recipe(layers=3), directory)["model"]


def _files(name: str, recipe: Callable[[], Recipe], directory: Path | None) -> dict[str, ModelFile]:
    """The files of a generated model, written where they are not there as they should be."""
    home = (directory or cache_dir()) / f"{name}-{_content_key()}"
    try:
        files = _verified(home)
        if files is None:
            _write(recipe(), home)
            files = _verified(home)
    except OSError as error:
        raise UsageProblem(
            f"the generated model cannot be kept in {home}: {error.strerror}",
            hint="XDG_CACHE_HOME names another place",
        ) from None
    if files is None:
        raise UsageProblem(f"the generated model in {home} does not stay as it was written")
    return files


def _content_key() -> str:
    """Changes when anything that decides the bytes changes: our sources, or the GGUF writer."""
    digest = hashlib.sha256(importlib.metadata.version("gguf").encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    digest.update(Path(oracle.__file__).read_bytes())
    return digest.hexdigest()[:16]


def _verified(home: Path) -> dict[str, ModelFile] | None:
    """The files in `home` if all are there and as they were written."""
    try:
        manifest: dict[str, str] = json.loads((home / _MANIFEST).read_text())
        found = {name: sha256_of(home / f"{name}.gguf") for name in manifest}
    except (FileNotFoundError, ValueError):
        return None
    if found != manifest:
        return None
    return {name: ModelFile(home / f"{name}.gguf", sha256) for name, sha256 in found.items()}


def _write(recipe: Recipe, home: Path) -> None:
    """Writes everything beside, then moves it in place as one: others never see a part."""
    home.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
    try:
        write_model(recipe, beside / "model.gguf")
        for letter in recipe.adapters:
            write_adapter(recipe, letter, beside / f"{letter}.gguf")
        manifest = {
            name: sha256_of(beside / f"{name}.gguf") for name in ("model", *recipe.adapters)
        }
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
