"""What commands that run the suite have in common: their options, a run, and how it is shown."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from harness.builds.base import Flavour
from harness.builds.ladder import ready
from harness.builds.obtain import obtain
from harness.deployment import in_keys
from harness.errors import UsageProblem
from harness.ledger import Run
from harness.report.format import Format, Part, in_json, in_markdown, terminal
from harness.report.wording import titled
from harness.server.device import AUTO
from harness.session import Session
from harness.suite import Selection, Server, run_suite

_DEVICE = {"--device", "-dev"}
_PROCESSES = re.compile(r"[1-9]\d*|auto|logical")


def add_format(parser: argparse.ArgumentParser) -> None:
    """`--format`."""
    parser.add_argument(
        "--format",
        choices=[form.value for form in Format],
        default=Format.TERMINAL.value,
        help="what to print (default: %(default)s)",
    )


def add_flavour(parser: argparse.ArgumentParser) -> None:
    """`--flavour`."""
    parser.add_argument(
        "--flavour",
        type=_flavour,
        default=Flavour.CPU,
        metavar="|".join(Flavour),
        help="what a build is to compute on that is no path (default: %(default)s)",
    )


def add_common(parser: argparse.ArgumentParser) -> None:
    """`--flavour`, `--format`, `-k`, `-m` and `-n`."""
    add_flavour(parser)
    add_format(parser)
    parser.add_argument("-k", dest="keyword", metavar="EXPR", help="only these scenarios (pytest)")
    parser.add_argument(
        "-m", dest="marks", metavar="MARKS", help="only these, e.g. 'not slow' (pytest)"
    )
    parser.add_argument(
        "-n", dest="processes", type=_processes, metavar="N", help="N at a time (pytest-xdist)"
    )


def selection(arguments: argparse.Namespace) -> Selection:
    """What `-k`, `-m` and `-n` say. Raises `UsageProblem` where that cannot be done."""
    chosen = Selection(
        keyword=arguments.keyword, marks=arguments.marks, processes=arguments.processes
    )
    chosen.check()
    return chosen


def server(ref: str, flavour: Flavour, **fields: Any) -> Server:
    """The build that a ref names, to be tested with these fields of `Server`.

    Raises `NotObtained` where it cannot be had.
    """
    found = ready(obtain(ref, flavour))
    wanted = Server(binary=found.path, **fields)
    # A person's own binary chooses itself, unless he says.
    theirs = found.entry is None or wanted.device != AUTO or _DEVICE.intersection(wanted.args)
    return wanted if theirs else replace(wanted, device=flavour.value)


def prepared(server: Server) -> Session:
    """As asked for, or why not, in the words of the file that says it."""
    try:
        return server.prepare()
    except UsageProblem as problem:
        message, hint = in_keys(problem.message), in_keys(problem.hint)
        raise UsageProblem(message, hint=hint, detail=problem.detail) from None


def tested(name: str, server: Server, session: Session, chosen: Selection) -> Run:
    """A run of the suite, with a line on stderr that says on what."""
    (build,) = session.builds
    print(f"{name}: {titled(build.facts())}, {build.origin.path}", file=sys.stderr, flush=True)
    run = run_suite(server, chosen)
    rows = (replace(row, reason=row.reason and in_keys(row.reason)) for row in run.verdicts)
    return replace(run, verdicts=tuple(rows))


def shown(form: str, parts: Iterable[Part], facts: Callable[[], dict[str, Any]]) -> Iterator[str]:
    """The lines of a report in the format that `--format` names."""
    if form == Format.JSON:
        return in_json(facts())
    return terminal(parts) if form == Format.TERMINAL else in_markdown(parts)


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
