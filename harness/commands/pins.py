"""`llama-harness pins`: the builds that are tracked."""

from __future__ import annotations

import argparse

from harness.commands.options import add_flavour, add_format, add_verbs
from harness.commands.output import printed

_EXITS = """\
exit codes: 0 all agreed; 1 something fails, or reuses another number, that was not to; 3 nothing
worse than builds that could not be had, or do not run on this CPU; 4 a usage error; 5 nothing worse
than scenarios without a verdict. What is newly fixed is no failure.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = "Lists the builds this project tracks, or checks that they do as expected."
    verbs = add_verbs(parser)
    listing = verbs.add_parser(
        "list",
        help="print the pins and what is expected of them",
        description="Prints each pinned build with what is expected of it, and who says so.",
    )
    add_format(listing)
    listing.set_defaults(run=_list)
    check = verbs.add_parser(
        "check",
        help="run what is expected of them, and print what agreed and what did not",
        description="Obtains each pinned build and runs the scenarios that something is expected "
        "of, with the model it is expected with.",
        epilog=_EXITS,
    )
    check.add_argument("names", nargs="*", metavar="PIN", help="default: all")
    check.add_argument(
        "--model",
        metavar="NAME",
        help="run all of it with this model, as --llama-model, or a generated one of this name; "
        "where something is expected with another, only the verdict is compared",
    )
    add_flavour(check)
    add_format(check)
    check.set_defaults(run=_check)


def _list(arguments: argparse.Namespace) -> int:
    from harness.commands.running import shown
    from harness.pins import load
    from harness.report.pins import facts, listed

    pins = load()
    return printed(shown(arguments.format, listed(pins), lambda: facts(pins, ())))


def _check(arguments: argparse.Namespace) -> int:
    from harness.commands.pins_check import findings, outcome
    from harness.commands.running import shown
    from harness.pins import load
    from harness.report.pins import facts, parts

    pins = load()
    found = findings(pins, arguments.names, arguments.flavour, arguments.model)
    code = printed(shown(arguments.format, parts(found), lambda: facts(pins, found)))
    return code or outcome({one.standing for one in found})
