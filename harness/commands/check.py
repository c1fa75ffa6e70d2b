"""`llama-harness check`: the suite on one build, the way an operator means to run it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness.builds.ref import GRAMMAR
from harness.check import Check, Status, accepting, check
from harness.commands.options import add_common, prepared, selection, server, shown, tested
from harness.commands.output import EXIT_FAILED, EXIT_NO_VERDICT, printed
from harness.deployment import read_deployment
from harness.report.check import facts, parts
from harness.suite import Selection

_DESCRIPTION = """\
Runs the suite on a build with your own flags and, if you like, your own model, and says of each
scenario whether it holds, fails or could not be tested. Your flags win over the suite's; where a
scenario needs other ones, it is not tested. Whatever fails fails, known bug or not.
"""
_EPILOG = """\
FILE is TOML; all keys are optional, paths are relative to it:
  args = "-fa on -ctk q8_0 --cache-ram 8192"  # as on the command line, or a list of words
  memory = "dense,swa"   # which generated models, as --llama-memory; or, instead of it,
  model = "chat.gguf"    # your own, or a name as of --llama-model, and
  lora = ["a.gguf"]      # adapters for it, two at most
  device = "cpu"         # as --llama-device
  timeout = 120          # seconds, as --llama-timeout
  accept = ["#26207"]    # known bugs that are no reason not to deploy (with generated models)

exit codes: 0 all that was tested holds, or fails as accepted; 1 something failed, or gave no
verdict for an error; 3 the build could not be had; 4 a usage error; 5 nothing reached a verdict
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """The command."""
    parser = commands.add_parser(
        "check",
        help="run the suite on a build with your own flags and model; 1 where something fails",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("ref", metavar="REF", help=f"the build: {GRAMMAR}")
    parser.add_argument("--config", type=Path, metavar="FILE", help="your flags and model (TOML)")
    add_common(parser)
    parser.set_defaults(run=_check)


def _check(arguments: argparse.Namespace) -> int:
    chosen = selection(arguments)
    fields = {} if arguments.config is None else read_deployment(arguments.config)
    accepted = fields.pop("accept", ())
    wanted = server(arguments.ref, arguments.flavour, **fields)
    run = tested("build", wanted, prepared(wanted), chosen)
    run = accepting(run, accepted)
    found, left_out = check(run), _left_out(chosen)
    lines = shown(
        arguments.format, parts(run, found, left_out), lambda: facts(run, found, left_out)
    )
    return printed(lines) or _outcome(found)


def _left_out(chosen: Selection) -> list[str]:
    given = {"-k": chosen.keyword, "-m": chosen.marks}
    return [f"{option} {value!r}" for option, value in given.items() if value]


def _outcome(found: Check) -> int:
    counts = {status: found.configurations(status) for status in Status}
    good = counts[Status.HOLDS] + counts[Status.ACCEPTED]
    if counts[Status.FAILS] or (counts[Status.ERROR] and good):
        return EXIT_FAILED
    return 0 if good else EXIT_NO_VERDICT
