"""The `llama-harness` command: argparse, and the one place that turns errors into exit codes."""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from harness import __version__
from harness.builds.base import Flavour
from harness.builds.build import examine
from harness.builds.ladder import ready
from harness.builds.obtain import obtain, origin
from harness.builds.origin import locate
from harness.commands import builds, check, compare, pins, suite
from harness.commands.output import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NO_VERDICT,
    EXIT_NOT_OBTAINED,
    EXIT_USAGE,
    printed,
)
from harness.errors import HarnessError, NotObtained, NoVerdict, UsageProblem
from harness.ledger import read
from harness.models.random_lora import make_random_lora
from harness.models.synthetic.store import ENCODERS, MODELS, files_of
from harness.report.ledger import Only, rows, sums
from harness.report.memory import page
from harness.server.config import check_adapter_path

_SERVED_BY = {"embedding": ("--embeddings",), "rerank": ("--reranking",)}
"""What a server needs to be told besides."""
_CODES = {UsageProblem: EXIT_USAGE, NotObtained: EXIT_NOT_OBTAINED, NoVerdict: EXIT_NO_VERDICT}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code."""
    arguments = parser().parse_args(argv)
    if sys.stderr is None:  # closed by whoever started us
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # to the end of the process
    if isinstance(sys.stdout, io.TextIOWrapper):  # a step may have any name
        sys.stdout.reconfigure(errors="backslashreplace")
    return exit_code("llama-harness", lambda: arguments.run(arguments))


def exit_code(program: str, command: Callable[[], int]) -> int:
    """What a command returns; where it raises one of our errors, that is said in one line."""
    try:
        return command()
    except HarnessError as error:
        print(f"{program}: {error}", file=sys.stderr)
        codes = (code for kind, code in _CODES.items() if isinstance(error, kind))
        return next(codes, EXIT_FAILED)
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = Parser(
        prog="llama-harness",
        description="The regression suite on a build or two, and helpers around it; pytest runs it "
        "with all its options.",
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    probe = commands.add_parser("probe", help="say what a llama-server binary is, as JSON")
    probe.add_argument(
        "binary", nargs="*", metavar="REF", help="default: the one the suite would use"
    )
    probe.set_defaults(run=_probe)

    model = commands.add_parser(
        "model", help="print where a generated model is, as llama-server arguments"
    )
    model.add_argument(
        "name",
        nargs="?",
        default="llama",
        choices=(*MODELS, *ENCODERS),
        metavar="NAME",
        help=f"{', '.join((*MODELS, *ENCODERS))} (default: %(default)s)",
    )
    model.add_argument("--dir", type=Path, help="write it below this directory, not the cache")
    model.set_defaults(run=_model)

    table = commands.add_parser(
        "by-memory", help="print what each memory kind reused, from ledgers, as Markdown"
    )
    table.add_argument(
        "ledger", nargs="+", type=Path, metavar="LEDGER", help="what --llama-report wrote"
    )
    table.set_defaults(run=_by_memory)

    ledger = commands.add_parser(
        "ledger",
        help="print what was reused in each request and why no more, and the sums",
        description="Prints a ledger: each step of each scenario, then sums by conversation, "
        "purpose, adapters, slot choice and reason.",
    )
    ledger.add_argument("file", type=Path, metavar="FILE", help="what --llama-report wrote")
    part = ledger.add_mutually_exclusive_group()
    part.add_argument(
        "--failed",
        action="store_const",
        dest="only",
        const=Only.FAILED,
        help="only the steps that failed, and no sums",
    )
    part.add_argument(
        "--reasons",
        action="store_const",
        dest="only",
        const=Only.REASONS,
        help="only the steps that have a reason, whether they failed or not, and no sums",
    )
    part.add_argument("--sums", action="store_true", help="only the sums")
    ledger.set_defaults(run=_ledger, only=Only.ALL)

    for command in (check, compare, builds, pins, suite):
        command.add(commands)

    lora = commands.add_parser(
        "make-lora", help="write a random LoRA adapter for a model, and print where it is"
    )
    lora.add_argument("model", type=Path, metavar="MODEL.gguf")
    lora.add_argument("--out", metavar="PATH", help="default: MODEL-lora-SEED.gguf, here")
    lora.add_argument(
        "--seed", type=_seed, default="A", help="another one makes another adapter (default: A)"
    )
    lora.set_defaults(run=_make_lora)
    return top


class Parser(argparse.ArgumentParser):
    """Usage errors have the same exit code as everywhere in the harness."""

    def error(self, message: str) -> NoReturn:
        """Says what is wrong, and leaves."""
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def _probe(arguments: argparse.Namespace) -> int:
    named = [origin(ready(obtain(ref)), Flavour.CPU, "ref") for ref in arguments.binary]
    builds = examine(named or locate([], os.environ))
    return printed(json.dumps(build.facts(), indent=2) for build in builds)


def _model(arguments: argparse.Namespace) -> int:
    files = files_of(arguments.name, arguments.dir)
    adapters = [files[letter].path for letter in ("A", "B")]
    for adapter in adapters:
        check_adapter_path(adapter)
    scaled = ",".join(f"{adapter}:0" for adapter in adapters)
    words = ["--model", str(files["model"].path), "--lora-scaled", scaled]
    return printed([shlex.join([*words, *_SERVED_BY.get(arguments.name, ())])])


def _by_memory(arguments: argparse.Namespace) -> int:
    return printed(page([read(path) for path in arguments.ledger]).splitlines())


def _ledger(arguments: argparse.Namespace) -> int:
    run, only = read(arguments.file), arguments.only
    parts = [] if arguments.sums else [rows(run, only)]
    if only is Only.ALL:
        parts.append(sums(run))
    return printed(itertools.chain(*parts))


def _seed(given: str) -> str:
    if not re.fullmatch(r"[\w.-]+", given, re.ASCII):
        raise argparse.ArgumentTypeError("letters, digits, '.', '_' and '-'")
    return given


def _make_lora(arguments: argparse.Namespace) -> int:
    model: Path = arguments.model
    default = f"{model.stem}-lora-{arguments.seed}.gguf"
    path = Path(os.path.expanduser(default if arguments.out is None else arguments.out))  # noqa: PTH111  # raises nothing
    check_adapter_path(path)
    make_random_lora(model, path, seed=arguments.seed)
    print(path)
    return 0
