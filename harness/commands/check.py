"""`llama-harness check`: the suite on one build, the way an operator means to run it."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.builds.base import Flavour
from harness.builds.ref import GRAMMAR
from harness.commands.options import add_common
from harness.commands.output import EXIT_FAILED, EXIT_NO_VERDICT, printed

_DESCRIPTION = """\
Runs the suite on a build with your own flags and, if you like, your own model. The last line of the
report and the exit code say whether the build may be deployed. Your flags win over the suite's;
what needs other flags is not tested, and not counted against the build. A known bug is a failure
unless the config file accepts it.

A ledger in place of the build (what --report wrote) is reported on again, without a run.
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

Is the build worse than what you run? That is another question:
  llama-harness compare OLD NEW --config FILE

exit codes: 0 it may be deployed: all that was tested holds, or fails as accepted; 1 it should not:
something failed; 3 the build could not be had, or does not run on this CPU; 4 a usage error; 5 it
cannot be said: something gave an error in place of a verdict, or nothing reached one
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("ref", metavar="REF|LEDGER", help=f"the build: {GRAMMAR}; or a ledger")
    parser.add_argument("--config", type=Path, metavar="FILE", help="your flags and model (TOML)")
    parser.add_argument("--report", type=Path, metavar="PATH", help="keep the ledger of the run")
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from harness.check import accepting, check
    from harness.commands import ledgers
    from harness.commands.running import prepared, selection, server, shown, tested
    from harness.deployment import read_deployment
    from harness.report.check import Asked, facts, page, parts

    fields = {} if arguments.config is None else read_deployment(arguments.config)
    accepted = fields.pop("accept", ())
    path = ledgers.ledger_path(arguments.ref)
    if path is not None:
        options = {
            "--report": arguments.report,
            "--flavour": arguments.flavour,
            "-k": arguments.keyword,
            "-m": arguments.marks,
            "-n": arguments.processes,
        }
        ledgers.refuse_options(options, [path])
        run = ledgers.finished(path)
        if arguments.config is not None:
            ledgers.check_agrees(run, path, fields, arguments.config)
        ref, left_out = ledgers.ref_of(run), ledgers.selection_of(run)
    else:
        chosen = selection(arguments)
        if arguments.report is not None:
            ledgers.check_writable(arguments.report)
        wanted = server(arguments.ref, arguments.flavour or Flavour.CPU, **fields)
        run = tested("build", wanted, prepared(wanted), chosen, arguments.report)
        given = {"-k": arguments.keyword, "-m": arguments.marks}
        ref = arguments.ref
        left_out = tuple(f"{option} {value!r}" for option, value in given.items() if value)
    run = accepting(ledgers.worded(run), accepted)
    asked = Asked(
        ref=ref,
        config=None if arguments.config is None else str(arguments.config),
        accepted=accepted,
        left_out=left_out,
    )
    about = (run, check(run), asked)
    lines = shown(arguments.format, parts(*about), lambda: facts(*about), page(*about))
    codes = {True: 0, False: EXIT_FAILED, None: EXIT_NO_VERDICT}
    return printed(lines) or codes[about[1].may_deploy]
