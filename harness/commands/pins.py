"""`llama-harness pins`: the builds that are tracked, and whether they do what is expected."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.builds.base import Flavour
from harness.builds.ladder import Ready, ready
from harness.builds.obtain import obtain
from harness.commands.options import add_flavour, add_format, shown
from harness.commands.output import EXIT_FAILED, EXIT_NO_VERDICT, EXIT_NOT_OBTAINED, printed
from harness.errors import HarnessError, NoVerdict, UsageProblem
from harness.models.published import PUBLISHED
from harness.models.synthetic.store import MODELS
from harness.pins import Expectation, Finding, Pin, Pins, Standing, finding, load
from harness.report.pins import facts, listed, parts
from harness.session import GENERATED
from harness.suite import Selection, Server, run_suite

_EXITS = """\
exit codes: 0 all agreed; 1 something fails, or reuses another number, that was not to; 3 nothing
worse than builds that could not be had; 4 a usage error; 5 nothing worse than scenarios without a
verdict. What is newly fixed is no failure.
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """The commands."""
    pins = commands.add_parser("pins", help="builds that are tracked: list or check them")
    verbs = pins.add_subparsers(required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="print the pins and what is expected of them")
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
    pins = load()
    return printed(shown(arguments.format, listed(pins), lambda: facts(pins, ())))


def _check(arguments: argparse.Namespace) -> int:
    pins = load()
    if arguments.model is not None:
        _check_model(arguments.model)
    found = [
        one
        for pin in pins.named(arguments.names)
        for one in _findings(pins, pin, arguments.flavour, arguments.model)
    ]
    code = printed(shown(arguments.format, parts(found), lambda: facts(pins, found)))
    return code or _outcome({one.standing for one in found})


def _check_model(name: str) -> None:
    """Before builds are obtained for minutes. Raises `UsageProblem` for what is no model."""
    if name not in {*MODELS, *PUBLISHED} and not Path(name).expanduser().is_file():
        raise UsageProblem(
            f"no model {name}", hint=f"a path, or one of {', '.join((*MODELS, *PUBLISHED))}"
        )


def _findings(pins: Pins, pin: Pin, flavour: Flavour, other_model: str | None) -> Iterator[Finding]:
    try:
        outcome = ready(obtain(pin.ref, flavour))
    except HarnessError as error:
        yield Finding(pin=pin, expectation=None, standing=Standing.NOT_OBTAINED, found=str(error))
        return
    by_model: dict[str, list[Expectation]] = {}
    for expectation in pins.of(pin):
        by_model.setdefault(other_model or expectation.model, []).append(expectation)
    for model, expectations in by_model.items():
        yield from _tested(pin, outcome, flavour, model, expectations)


def _tested(
    pin: Pin, build: Ready, flavour: Flavour, model: str, expectations: list[Expectation]
) -> Iterator[Finding]:
    """What one run of the suite shows, or why there was none."""
    server = _server(build, flavour, model)
    chosen = Selection(keyword=" or ".join(_name(one, model) for one in expectations))
    try:
        print(f"{pin.name}: {build.path}", file=sys.stderr, flush=True)
        run = run_suite(server, chosen)
    except HarnessError as error:
        broke_off = isinstance(error, NoVerdict)
        for one in expectations:
            yield Finding(
                pin=pin,
                expectation=one,
                standing=Standing.NO_VERDICT if broke_off else Standing.NOT_OBTAINED,
                model=model,
                found=str(error),
            )
        return
    rows = {(row.scenario, row.configuration): row for row in run.verdicts}
    title = build.entry.facts.title if build.entry else str(build.path)
    for one in expectations:
        row = rows.get((one.scenario, one.configuration))
        yield finding(pin, one, row, build=title, model=model)


def _name(one: Expectation, model: str) -> str:
    """A test's own name, which has the generated model in it."""
    where = f"{model}-{one.configuration}" if model in MODELS else one.configuration
    return f"{one.scenario.partition('::')[2]}[{where}]"


def _server(build: Ready, flavour: Flavour, model: str) -> Server:
    generated = model in MODELS
    return Server(
        binary=build.path,
        device=flavour.value,
        model=GENERATED if generated else _absolute(model),
        memory=model if generated else None,
    )


def _absolute(model: str) -> str:
    return model if model in PUBLISHED else str(Path(model).expanduser().absolute())


def _outcome(standings: set[Standing]) -> int:
    if standings & {Standing.NEWLY_FAILING, Standing.DIFFERS}:
        return EXIT_FAILED
    if Standing.NOT_OBTAINED in standings:
        return EXIT_NOT_OBTAINED
    return EXIT_NO_VERDICT if Standing.NO_VERDICT in standings else 0
