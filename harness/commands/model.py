"""`llama-harness model`: where a generated model is."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from harness.commands.output import printed
from harness.models.synthetic.store import ENCODERS, MODELS, files_of
from harness.server.config import check_adapter_path

_SERVED_BY = {"embedding": ("--embeddings",), "rerank": ("--reranking",)}
"""The flags that llama-server needs to serve a model of another kind."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Writes a generated model with its two adapters, unless it is there, and prints the "
        "arguments with which llama-server serves it."
    )
    parser.add_argument(
        "name",
        nargs="?",
        default="llama",
        choices=(*MODELS, *ENCODERS),
        metavar="NAME",
        help=f"{', '.join((*MODELS, *ENCODERS))} (default: %(default)s)",
    )
    parser.add_argument("--dir", type=Path, help="write it below this directory, not the cache")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    files = files_of(arguments.name, arguments.dir)
    adapters = [files[letter].path for letter in ("A", "B")]
    for adapter in adapters:
        check_adapter_path(adapter)
    scaled = ",".join(f"{adapter}:0" for adapter in adapters)
    words = ["--model", str(files["model"].path), "--lora-scaled", scaled]
    return printed([shlex.join([*words, *_SERVED_BY.get(arguments.name, ())])])
