"""Options that several commands have, declared without importing what they are for."""

from __future__ import annotations

import argparse
import re
from typing import Any

from harness.builds.base import Flavour
from harness.commands.output import EXIT_USAGE, printed
from harness.report.format import Format

_PROCESSES = re.compile(r"[1-9]\d*|auto|logical")
_WIDTH = (
    "Tables fit the terminal; where stdout is none, $COLUMNS, or 100 columns. Cells that do not "
    "fit continue on indented lines."
)


def add_format(parser: argparse.ArgumentParser) -> None:
    """Declare `--format`."""
    parser.add_argument(
        "--format",
        choices=[form.value for form in Format],
        default=Format.TERMINAL.value,
        help=f"what to print (default: %(default)s). {_WIDTH}",
    )


def add_flavour(parser: argparse.ArgumentParser, *, default: Flavour | None = Flavour.CPU) -> None:
    """Declare `--flavour`. A default of None tells whether the option was given."""
    parser.add_argument(
        "--flavour",
        type=_flavour,
        default=default,
        metavar="|".join(Flavour),
        help=f"what a build is to compute on that is no path (default: {Flavour.CPU})",
    )


def add_common(parser: argparse.ArgumentParser) -> None:
    """Declare the options of commands that run the suite."""
    add_flavour(parser, default=None)
    add_format(parser)
    parser.add_argument("-k", dest="keyword", metavar="EXPR", help="only these scenarios (pytest)")
    parser.add_argument(
        "-m", dest="marks", metavar="MARKS", help="only these, e.g. 'not slow' (pytest)"
    )
    parser.add_argument(
        "-n", dest="processes", type=_processes, metavar="N", help="N at a time (pytest-xdist)"
    )


def add_verbs(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[Any]:
    """Declare that a command has verbs; without one its help is printed, with exit code 4."""

    def run(arguments: argparse.Namespace) -> int:
        return printed(parser.format_help().splitlines()) or EXIT_USAGE

    parser.set_defaults(run=run)
    return parser.add_subparsers(metavar="VERB", title="verbs")


def _flavour(given: str) -> Flavour:
    try:
        return Flavour(given)
    except ValueError:
        known = ", ".join(Flavour)
        raise argparse.ArgumentTypeError(f"{given!r} is none of {known}") from None


def _processes(given: str) -> str:
    if not _PROCESSES.fullmatch(given):
        raise argparse.ArgumentTypeError(f"{given!r} is not a number, nor auto")
    return given
