"""`llama-harness make-lora`: a random LoRA adapter for a model."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from harness.commands.output import printed


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Writes a random LoRA adapter for a GGUF model and prints the path of it: an adapter to "
        "test with, where you have none (pytest --llama-lora=PATH)."
    )
    parser.add_argument("model", type=Path, metavar="MODEL.gguf", help="the model it is for")
    parser.add_argument("--out", metavar="PATH", help="default: MODEL-lora-SEED.gguf, here")
    parser.add_argument(
        "--seed", type=_seed, default="A", help="another one makes another adapter (default: A)"
    )
    parser.set_defaults(run=_run)


def _seed(given: str) -> str:
    if not re.fullmatch(r"[\w.-]+", given, re.ASCII):
        raise argparse.ArgumentTypeError(f"{given!r} is not of letters, digits, '.', '_' and '-'")
    return given


def _run(arguments: argparse.Namespace) -> int:
    from harness.models.random_lora import make_random_lora
    from harness.server.config import check_adapter_path

    model: Path = arguments.model
    default = f"{model.stem}-lora-{arguments.seed}.gguf"
    path = Path(os.path.expanduser(default if arguments.out is None else arguments.out))  # noqa: PTH111  # raises nothing
    check_adapter_path(path)
    make_random_lora(model, path, seed=arguments.seed)
    return printed([str(path)])
