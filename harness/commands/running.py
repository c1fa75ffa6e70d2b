"""A run of the suite by a command, and how its report is printed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.builds.base import Flavour
from harness.builds.ladder import ready
from harness.builds.obtain import obtain
from harness.commands.output import width
from harness.deployment import in_keys
from harness.errors import UsageProblem
from harness.ledger import Run
from harness.models.synthetic.store import chosen
from harness.report.format import Format, Part, in_json, in_markdown, terminal
from harness.report.wording import titled
from harness.server.device import AUTO
from harness.session import Session
from harness.suite import Selection, Server, run_suite

_DEVICE = {"--device", "-dev"}


def selection(arguments: argparse.Namespace) -> Selection:
    """Return what `-k`, `-m` and `-n` say. Raises `UsageProblem` where that cannot be done."""
    chosen = Selection(
        keyword=arguments.keyword, marks=arguments.marks, processes=arguments.processes
    )
    chosen.check()
    return chosen


def check_memory(words: str) -> None:
    """Raise `UsageProblem` for what names no generated model, before a build is made."""
    try:
        chosen(words)
    except UsageProblem as problem:
        raise UsageProblem(in_keys(problem.message), hint=in_keys(problem.hint)) from None


def server(ref: str, flavour: Flavour, **fields: Any) -> Server:
    """Return the build that a ref names, to be tested with these fields of `Server`.

    Raises `NotObtained` where the build cannot be had.
    """
    found = ready(obtain(ref, flavour))
    wanted = Server(binary=found.path, **fields)
    # A person's own binary chooses itself, unless he says.
    theirs = found.entry is None or wanted.device != AUTO or _DEVICE.intersection(wanted.args)
    return wanted if theirs else replace(wanted, device=flavour.value)


def prepared(server: Server) -> Session:
    """Prepare a run. An option that cannot be used is named by its key in the config file."""
    try:
        return server.prepare()
    except UsageProblem as problem:
        message, hint = in_keys(problem.message), in_keys(problem.hint)
        raise UsageProblem(message, hint=hint, detail=problem.detail) from None


def tested(
    name: str, server: Server, session: Session, chosen: Selection, report: Path | None
) -> Run:
    """Run the suite, after a line on stderr that says on which build.

    The ledger is kept at `report`, if that is not None.
    """
    (build,) = session.builds
    print(f"{name}: {titled(build.facts())}, {build.origin.path}", file=sys.stderr, flush=True)
    return run_suite(server, chosen, report and report.absolute())


def shown(
    form: str,
    parts: Iterable[Part],
    facts: Callable[[], dict[str, Any]],
    page: Iterable[Part] | None = None,
) -> Iterator[str]:
    """Return the lines of a report in the format that `--format` names.

    `page` is the report in Markdown, where that is not just `parts`.
    """
    if form == Format.JSON:
        return in_json(facts())
    if form == Format.MARKDOWN:
        return in_markdown(parts if page is None else page)
    return terminal(parts, width())
