"""`llama-harness by-memory`: what each kind of memory reused, from ledgers."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.commands.output import printed


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Prints what each kind of memory reused in each scenario, as Markdown, a column a ledger."
    )
    parser.add_argument(
        "ledger", nargs="+", type=Path, metavar="LEDGER", help="what --llama-report wrote"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from harness.ledger import read
    from harness.report.memory import page

    return printed(page([read(path) for path in arguments.ledger]).splitlines())
