"""`llama-harness compare`: the suite on two builds, and what changed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness.builds.ref import GRAMMAR, parse
from harness.commands.options import add_common, prepared, selection, server, shown, tested
from harness.commands.output import EXIT_FAILED, EXIT_NO_VERDICT, printed
from harness.compare import Comparison, Kind, compare
from harness.deployment import read_deployment
from harness.report.compare import facts, parts

_DESCRIPTION = """\
Runs the suite on both builds and prints what changed from BASE to HEAD. Known bugs are failures on
both, so that one which is no different is no change.
"""
_EXITS = """\
exit codes: 0 nothing broke; 1 something broke; 3 a build could not be had; 4 a usage error; 5 no
scenario reached a verdict on both, so that nothing was compared
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """The command."""
    parser = commands.add_parser(
        "compare",
        help="run the suite on two builds and print what changed; 1 where something broke",
        description=_DESCRIPTION,
        epilog=_EXITS,
    )
    parser.add_argument("base", metavar="BASE", help=f"the build to compare with: {GRAMMAR}")
    parser.add_argument("head", metavar="HEAD", help="the build that may have broken something")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="your own flags and model for both, as of check (TOML)",
    )
    parser.add_argument(
        "--memory", metavar="KINDS", help="generated models to test with, as --llama-memory"
    )
    add_common(parser)
    parser.set_defaults(run=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    chosen = selection(arguments)
    refs = (arguments.base, arguments.head)
    for ref in refs:
        parse(ref)  # both, before one is built for minutes
    fields = {} if arguments.config is None else read_deployment(arguments.config)
    fields.pop("accept", None)  # what both do is no change
    if arguments.memory is not None:
        fields["memory"] = arguments.memory
    servers = [server(ref, arguments.flavour, **fields) for ref in refs]
    sessions = [prepared(one) for one in servers]  # both, before either runs for minutes
    base, head = (
        tested(*about, chosen) for about in zip(("base", "head"), servers, sessions, strict=True)
    )
    found = compare(base, head)
    lines = shown(arguments.format, parts(base, head, found), lambda: facts(base, head, found))
    return printed(lines) or _outcome(found)


def _outcome(found: Comparison) -> int:
    if found.counts[Kind.BROKEN]:
        return EXIT_FAILED
    return 0 if found.compared else EXIT_NO_VERDICT
