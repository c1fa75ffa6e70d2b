"""The generated models, by what they are for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from harness import oracle
from harness.memory import Memory
from harness.models import shelf
from harness.models.spec import Model, ModelFile
from harness.models.synthetic import dense, vocabulary
from harness.models.synthetic.recipe import Recipe, write_lora, write_model

KINDS: Mapping[Memory, Callable[[], Recipe]] = {Memory.DENSE: dense.recipe}
"""One recipe a memory kind."""


def generated(memory: Memory = Memory.DENSE, directory: Path | None = None) -> Model:
    """The generated model of a memory kind, from the cache or written now.

    `directory` is the cache to use. Raises `UsageProblem` when it cannot be written.
    """
    files = _files(str(memory), KINDS[memory], directory)
    return Model(
        name=f"generated {memory}",
        file=files.pop("model"),
        adapters=dict(sorted(files.items())),
        memory=memory,
        oracle=vocabulary.oracle(),
    )


def stranger(directory: Path | None = None) -> ModelFile:
    """A model whose slot files no other model can take: it has three layers.

    Raises as `generated` does.
    """
    return _files("stranger", lambda: dense.recipe(layers=3), directory)["model"]


def _files(
    name: str, make_recipe: Callable[[], Recipe], directory: Path | None
) -> dict[str, ModelFile]:
    def write(home: Path) -> None:
        recipe = make_recipe()
        write_model(recipe, home / "model.gguf")
        for letter, lora in recipe.adapters.items():
            path = home / f"{letter}.gguf"
            write_lora(path, recipe.architecture, lora, alpha=recipe.adapter_alpha)

    sources = (*sorted(Path(__file__).parent.glob("*.py")), Path(oracle.__file__))
    return shelf.kept(f"{name}-{shelf.content_key(sources)}", write, directory)
