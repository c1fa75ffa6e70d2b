"""`llama-harness get`: a build by its name."""

from __future__ import annotations

import argparse

from harness.builds.ref import GRAMMAR
from harness.commands.options import add_flavour, add_format
from harness.commands.output import printed


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Prints the path of a ready llama-server (with --format=json also what is known of it): "
        "from the store, the wheel, an upstream release, upstream's source or its sdist, whichever "
        "has it first. Progress goes to stderr."
    )
    parser.epilog = (
        "exit codes: 0 the build is there; 3 it does not build, does not run on this CPU, or could "
        "not be had; 4 a usage error"
    )
    parser.add_argument("ref", metavar="REF", help=f"the build: {GRAMMAR}")
    add_flavour(parser)
    add_format(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from harness.builds.ladder import ready
    from harness.builds.obtain import obtain
    from harness.commands.running import shown
    from harness.report.builds import ready_facts
    from harness.report.format import Line

    found = ready(obtain(arguments.ref, arguments.flavour))
    return printed(shown(arguments.format, [Line(found.path)], lambda: ready_facts(found)))
