"""`llama-harness suite`: where the suite is."""

from __future__ import annotations

import argparse

from harness.commands.output import printed


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Prints the directory of the suite, an argument for pytest from anywhere: "
        "pytest $(llama-harness suite) --llama-bin=PATH"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from harness.suite import scenarios

    return printed([str(scenarios())])
