"""What `llama-harness pins check` does: obtain each pinned build and run what is expected of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.builds.base import Flavour
from harness.builds.ladder import Ready, ready
from harness.builds.obtain import obtain
from harness.commands.output import EXIT_FAILED, EXIT_NO_VERDICT, EXIT_NOT_OBTAINED
from harness.errors import DoesNotRun, HarnessError, NoVerdict, UsageProblem
from harness.models.published import PUBLISHED
from harness.models.synthetic.store import MODELS
from harness.pins import Expectation, Finding, Pin, Pins, Standing, finding
from harness.report.wording import item_name
from harness.session import GENERATED
from harness.suite import Selection, Server, run_suite


def findings(
    pins: Pins, names: Sequence[str], flavour: Flavour, other_model: str | None
) -> list[Finding]:
    """Run what is expected of the pins with these names, or of all, and return what was found.

    Raises `UsageProblem` for a name that is no pin, and for a model that is none.
    """
    if other_model is not None:
        _check_model(other_model)
    chosen = pins.named(names)
    return [one for pin in chosen for one in _of_pin(pins, pin, flavour, other_model)]


def _check_model(name: str) -> None:
    """Raise `UsageProblem` for what is no model, before builds are obtained for minutes."""
    if name not in {*MODELS, *PUBLISHED} and not Path(name).expanduser().is_file():
        raise UsageProblem(
            f"no model {name}", hint=f"a path, or one of {', '.join((*MODELS, *PUBLISHED))}"
        )


def _of_pin(pins: Pins, pin: Pin, flavour: Flavour, other_model: str | None) -> Iterator[Finding]:
    try:
        outcome = ready(obtain(pin.ref, flavour))
    except HarnessError as error:
        yield Finding(pin=pin, expectation=None, standing=_trouble(error), found=str(error))
        return
    by_model: dict[str, list[Expectation]] = {}
    for expectation in pins.of(pin):
        by_model.setdefault(other_model or expectation.model, []).append(expectation)
    for model, expectations in by_model.items():
        yield from _tested(pin, outcome, flavour, model, expectations)


def _tested(
    pin: Pin, build: Ready, flavour: Flavour, model: str, expectations: list[Expectation]
) -> Iterator[Finding]:
    """Run the suite once and yield what it shows, or why there was no run."""
    server = _server(build, flavour, model)
    chosen = Selection(
        keyword=" or ".join(
            item_name(one.scenario, model, one.configuration) for one in expectations
        )
    )
    try:
        print(f"{pin.name}: {build.path}", file=sys.stderr, flush=True)
        run = run_suite(server, chosen)
    except HarnessError as error:
        for one in expectations:
            yield Finding(
                pin=pin,
                expectation=one,
                standing=_trouble(error),
                model=model,
                found=str(error),
            )
        return
    rows = {(row.scenario, row.configuration): row for row in run.verdicts}
    title = build.entry.facts.title if build.entry else str(build.path)
    for one in expectations:
        row = rows.get((one.scenario, one.configuration))
        yield finding(pin, one, row, build=title, model=model)


def _trouble(error: HarnessError) -> Standing:
    """Return how a pin stands whose build or model gave an error instead of verdicts."""
    if isinstance(error, DoesNotRun):
        return Standing.DOES_NOT_RUN
    return Standing.NO_VERDICT if isinstance(error, NoVerdict) else Standing.NOT_OBTAINED


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


def outcome(standings: set[Standing]) -> int:
    """Return the exit code for all that was found."""
    if standings & {Standing.NEWLY_FAILING, Standing.DIFFERS}:
        return EXIT_FAILED
    if standings & {Standing.NOT_OBTAINED, Standing.DOES_NOT_RUN}:
        return EXIT_NOT_OBTAINED
    return EXIT_NO_VERDICT if Standing.NO_VERDICT in standings else 0
