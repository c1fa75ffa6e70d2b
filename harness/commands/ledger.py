"""`llama-harness ledger`: a ledger in words."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from harness.commands.output import printed, width
from harness.ledger import read
from harness.report.ledger import Only, rows, sums
from harness.report.terminal import summary


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Prints a ledger: each step of each scenario, then sums by conversation, purpose, "
        "adapters, slot choice and reason."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="what --llama-report wrote")
    part = parser.add_mutually_exclusive_group()
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
    part.add_argument(
        "--table", action="store_true", help="the table that pytest -v shows at its end, alone"
    )
    parser.set_defaults(run=_run, only=Only.ALL)


def _run(arguments: argparse.Namespace) -> int:
    run, only = read(arguments.file), arguments.only
    if arguments.table:
        return printed(summary(run.verdicts, width()))
    parts = [] if arguments.sums else [rows(run, only)]
    if only is Only.ALL:
        parts.append(sums(run))
    return printed(itertools.chain(*parts))
