"""`llama-harness probe`: what a llama-server binary is."""

from __future__ import annotations

import argparse
import json
import os

from harness.commands.output import printed


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Prints what each llama-server binary says of itself, as a JSON object each: version, "
        "commit and devices, with the sha256 of the file."
    )
    parser.epilog = "exit codes: 0 it is a llama-server; 3 it could not be had, or does not run on "
    parser.epilog += "this CPU; 4 a usage error, such as a binary that is no llama-server"
    parser.add_argument(
        "binary", nargs="*", metavar="REF", help="default: the one the suite would use"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from harness.builds.base import Flavour
    from harness.builds.build import accept, examine
    from harness.builds.ladder import ready
    from harness.builds.obtain import obtain, origin
    from harness.builds.origin import locate
    from harness.session import DEFAULT_SECONDS

    named = [origin(ready(obtain(ref)), Flavour.CPU, "ref") for ref in arguments.binary]
    builds = examine(named or locate([], os.environ))
    code = printed(json.dumps(build.facts(), indent=2) for build in builds)
    accept(builds, DEFAULT_SECONDS)
    return code
