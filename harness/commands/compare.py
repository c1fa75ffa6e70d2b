"""`llama-harness compare`: the suite on two builds, and what changed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness.builds.base import Flavour
from harness.builds.ref import GRAMMAR, parse
from harness.commands.options import add_common
from harness.commands.output import EXIT_FAILED, EXIT_NO_VERDICT, printed
from harness.errors import UsageProblem

if TYPE_CHECKING:
    from harness.ledger import Run

_DESCRIPTION = """\
Runs the suite on both builds and prints what changed from BASE to HEAD. A known bug that both
builds have is no change.

A ledger in place of a build (what --report wrote, or pytest --llama-report) is taken as the run on
that build: llama-harness compare base.jsonl head.jsonl --format=markdown
"""
_EPILOG = """\
exit codes: 0 nothing broke; 1 something broke; 3 a build could not be had, or does not run on this
CPU; 4 a usage error; 5 no scenario reached a verdict on both, so that nothing was compared
"""
_NAMES = ("base", "head")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "base", metavar="BASE", help=f"the build to compare with: {GRAMMAR}; or a ledger"
    )
    parser.add_argument(
        "head", metavar="HEAD", help="the build that may have broken something; or a ledger"
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="your own flags and model for both, as of check (TOML)",
    )
    parser.add_argument(
        "--memory", metavar="KINDS", help="generated models to test with, as --llama-memory"
    )
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="keep both ledgers: DIR/{base,head}.jsonl"
    )
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from harness.commands import ledgers
    from harness.commands.running import shown
    from harness.compare import Kind, compare
    from harness.report.compare import Asked, facts, page, parts

    base, head = _runs(arguments)
    given = (arguments.base, arguments.head)
    asked = Asked(
        refs=tuple(
            ledgers.ref_of(run) if ledgers.ledger_path(ref) else ref
            for ref, run in zip(given, (base, head), strict=True)
        ),
        config=None if arguments.config is None else arguments.config.name,
        memory=arguments.memory,
    )
    found = compare(base, head)
    about = (base, head, found)
    lines = shown(arguments.format, parts(*about), lambda: facts(*about), page(*about, asked))
    failed = EXIT_FAILED if found.counts[Kind.BROKEN] else 0
    return printed(lines) or failed or (0 if found.compared else EXIT_NO_VERDICT)


def _runs(arguments: argparse.Namespace) -> Iterator[Run]:
    """Yield the two runs: ledgers are read first, and all is checked before anything runs."""
    from harness.commands import ledgers
    from harness.commands.running import check_memory, prepared, selection, server, tested
    from harness.deployment import read_deployment

    refs = (arguments.base, arguments.head)
    paths = [ledgers.ledger_path(ref) for ref in refs]
    there = [path for path in paths if path is not None]
    choosing = {"--memory": arguments.memory, "-k": arguments.keyword, "-m": arguments.marks}
    running = {"--flavour": arguments.flavour, "-n": arguments.processes}
    if there:
        ledgers.refuse_twice(there)
        refused = {**choosing, "--report": arguments.report}
        ledgers.refuse_options(refused | (running if len(there) == len(paths) else {}), there)
    if arguments.memory is not None:
        check_memory(arguments.memory)
    for ref, path in zip(refs, paths, strict=True):
        if path is None:
            parse(ref)  # both, before one is built for minutes
    fields = {} if arguments.config is None else read_deployment(arguments.config)
    fields.pop("accept", None)  # what both do is no change
    if arguments.memory is not None:
        if "model" in fields:
            raise UsageProblem(
                f"--memory chooses among generated models, and {arguments.config} has model",
                hint="leave one of them out",
            )
        fields["memory"] = arguments.memory
    read = {path: ledgers.finished(path) for path in there}
    if arguments.config is not None:
        for path, run in read.items():
            ledgers.check_agrees(run, path, fields, arguments.config)
    chosen = selection(arguments)
    if arguments.report is not None:
        ledgers.check_writable(arguments.report, directory=True)
    flavour = arguments.flavour or Flavour.CPU
    servers = [
        None if path else server(ref, flavour, **fields)
        for ref, path in zip(refs, paths, strict=True)
    ]
    # Both, before either runs for minutes.
    ready = [None if one is None else (one, prepared(one)) for one in servers]
    for name, path, about in zip(_NAMES, paths, ready, strict=True):
        kept = None if arguments.report is None else arguments.report / f"{name}.jsonl"
        if about is not None:
            yield ledgers.worded(tested(name, *about, chosen, kept))
        elif path is not None:
            yield ledgers.worded(read[path])
