"""`llama-harness suite`: where the suite is."""

from __future__ import annotations

import argparse
from typing import Any

from harness.commands.output import printed
from harness.suite import scenarios


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """The command."""
    suite = commands.add_parser(
        "suite",
        help="print where the suite is, for pytest $(llama-harness suite) --llama-bin=PATH",
        description="Prints the directory of the suite: an argument for pytest, from anywhere.",
    )
    suite.set_defaults(run=_suite)


def _suite(arguments: argparse.Namespace) -> int:
    return printed([str(scenarios())])
