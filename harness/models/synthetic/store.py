"""The generated models by name, and where their files are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness import oracle
from harness.errors import UsageProblem
from harness.memory import Memory
from harness.models import shelf
from harness.models.spec import Model, ModelFile
from harness.models.synthetic import (
    bert,
    deepseek2,
    falcon_h1,
    gemma3,
    gpt_oss,
    granitehybrid,
    lfm2,
    llama,
    mamba2,
    qwen3,
    qwen3moe,
    qwen3next,
    rwkv7,
    vocabulary,
)
from harness.models.synthetic.recipe import Recipe, write_lora, write_model


@dataclass(frozen=True, slots=True)
class Entry:
    """One generated model that generates text."""

    kind: str
    """What `--llama-memory` calls all models that remember like this one."""
    memory: Memory
    recipe: Callable[[], Recipe]


MODELS: Mapping[str, Entry] = {
    "llama": Entry("dense", Memory.DENSE, llama.recipe),
    "qwen3": Entry("dense", Memory.DENSE, qwen3.recipe),
    "qwen3moe": Entry("moe", Memory.DENSE, qwen3moe.recipe),
    "deepseek2": Entry("mla", Memory.DENSE, deepseek2.recipe),
    "gemma3": Entry("swa", Memory.SWA, gemma3.recipe),
    "gptoss": Entry("swa", Memory.SWA, gpt_oss.recipe),
    "mamba2": Entry("recurrent", Memory.RECURRENT, mamba2.recipe),
    "rwkv7": Entry("recurrent", Memory.RECURRENT, rwkv7.recipe),
    "granitehybrid": Entry("hybrid", Memory.HYBRID, granitehybrid.recipe),
    "falconh1": Entry("hybrid", Memory.HYBRID, falcon_h1.recipe),
    "qwen3next": Entry("hybrid", Memory.HYBRID, qwen3next.recipe),
    "lfm2": Entry("hybrid", Memory.HYBRID, lfm2.recipe),
}
"""By the name they have in ids of tests, without '-'. The first of a kind stands for it."""

DEFAULT = "dense,swa,recurrent,hybrid"
"""One of each kind that can reuse other things than the rest."""
ALL = "all"

ENCODERS: Mapping[str, Callable[[], Recipe]] = {
    "embedding": bert.embedder,
    "rerank": bert.reranker,
}
"""Models that keep nothing of what they read."""


def chosen(words: str) -> tuple[str, ...]:
    """The names of the models that `--llama-memory=words` means, in the order of `MODELS`.

    A kind means the first model of its kind. Raises `UsageProblem` for a word that is neither.
    """
    first: dict[str, str] = {}
    for name, entry in MODELS.items():
        first.setdefault(entry.kind, name)
    names = set()
    for word in filter(None, (word.strip() for word in words.split(","))):
        if word != ALL and word not in first and word not in MODELS:
            raise UsageProblem(
                f"--llama-memory: there is no kind of memory, and no model, called {word}",
                hint=f"kinds: {', '.join(first)}; models: {', '.join(MODELS)}; or {ALL}",
            )
        names |= set(MODELS) if word == ALL else {first.get(word, word)}
    if not names:
        raise UsageProblem("--llama-memory names nothing", hint=f"kinds: {', '.join(first)}")
    return tuple(name for name in MODELS if name in names)


def generated(name: str = "llama", directory: Path | None = None) -> Model:
    """A generated model, from the cache or written now.

    `name` is one of `MODELS`; `directory` is the cache to use. Raises `UsageProblem` when it cannot
    be written.
    """
    files = files_of(name, directory)
    return Model(
        name=name,
        file=files.pop("model"),
        adapters=dict(sorted(files.items())),
        memory=MODELS[name].memory,
        oracle=vocabulary.oracle(),
    )


def files_of(name: str, directory: Path | None = None) -> dict[str, ModelFile]:
    """The files of one of `MODELS` or `ENCODERS`: its `model` and its adapters, `A` and `B`.

    Raises as `generated` does.
    """
    recipe = MODELS[name].recipe if name in MODELS else ENCODERS[name]
    return _files(name, recipe, directory)


def stranger(directory: Path | None = None) -> ModelFile:
    """A model whose slot files no other model can take: it has three layers.

    Raises as `generated` does.
    """
    return _files("stranger", lambda: llama.recipe(3), directory)["model"]


def draft(directory: Path | None = None) -> ModelFile:
    """A model to draft for the generated llama: it knows the same tokens, and has one layer.

    Raises as `generated` does.
    """
    return _files("draft", llama.draft, directory)["model"]


def activated_adapter(directory: Path | None = None) -> ModelFile:
    """The generated llama's adapter A as an aLoRA, which `llama.INVOCATION` in a prompt invokes.

    Raises as `generated` does.
    """
    return _files("alora", llama.activated, directory)["A"]


def _files(
    name: str, make_recipe: Callable[[], Recipe], directory: Path | None
) -> dict[str, ModelFile]:
    def write(home: Path) -> None:
        recipe = make_recipe()
        write_model(recipe, home / "model.gguf")
        for letter, lora in recipe.adapters.items():
            path = home / f"{letter}.gguf"
            write_lora(path, recipe.architecture, lora, metadata=recipe.adapter_metadata)

    sources = (*sorted(Path(__file__).parent.glob("*.py")), Path(oracle.__file__))
    return shelf.kept(f"{name}-{shelf.content_key(sources)}", write, directory)
