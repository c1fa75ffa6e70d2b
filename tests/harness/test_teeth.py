"""Teeth: each scenario fails where its fault is present, and just so.

The faults are a front's (see `tests/harness/fronts`). What a fault does to each scenario is worked
out from what the fault is and what the scenario claims (`tests/harness/teeth`); whatever is not in
a row must hold.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.builds.build import Build
from harness.expect import Kind
from harness.known_bugs import Case, find, load
from harness.ledger import Verdict
from harness.models.synthetic.store import MODELS
from tests.harness.fronts.faults import FAULTS, NONE
from tests.harness.fronts.trial import run, write_front
from tests.harness.teeth import FAMILIES
from tests.harness.teeth.table import Family, Row, Signature

ROWS = [
    pytest.param(
        family,
        row,
        id="-".join(
            (
                family.name.removeprefix("test_"),
                row.fault,
                row.configuration or "slow",
                *([row.model] if row.model != "llama" else []),
            )
        ),
        marks=[] if row.configuration else [pytest.mark.slow],
    )
    for family in FAMILIES
    for row in family.table
]

FUNCTIONS = [
    pytest.param(family, function, id=f"{family.name}-{name}")
    for family in FAMILIES
    for name, function in family.functions.items()
]


@pytest.mark.parametrize(("family", "row"), ROWS)
def test_fault_shows_just_so(
    family: Family, row: Row, real_server: Path, llama_build: Build, tmp_path: Path
) -> None:
    if any(row.known_bug) and not _is_known(row, llama_build):
        pytest.skip("this fault is a real server's own, and this build is not known to have it")
    front = write_front(tmp_path, real=real_server, fault=row.fault)
    trial = run(
        front,
        family.name,
        row.configuration,
        model=row.model,
        only=row.only,
        options=row.options,
    )
    shown = trial.outcomes
    assert {name.partition("-")[0] for name in shown} == family.run_in(row), trial.output
    assert shown == {name: _outcome(row.expected(name)) for name in shown}
    assert trial.returncode == pytest.ExitCode.TESTS_FAILED


def test_every_fault_is_tried() -> None:
    tried = {row.fault for family in FAMILIES for row in family.table}
    assert tried == FAULTS.keys() - {NONE}


def test_every_file_of_scenarios_has_a_table() -> None:
    files = (Path(__file__).parents[1] / "cache").glob("test_*.py")
    assert {file.stem for file in files} == {family.name for family in FAMILIES}


@pytest.mark.parametrize(("family", "function"), FUNCTIONS)
def test_scenario_can_fail(family: Family, function: Callable[..., None]) -> None:
    """Some fault shows as each kind of failure that a scenario is there to find."""
    kinds = set().union(*(row.kinds(function.__name__) for row in family.table))
    assert kinds & {Kind.WRONG_REUSE, Kind.WRONG_ANSWER}
    source = inspect.getsource(function)
    if "Claim.PROMISED" in source or "check_refused(" in source:
        assert Kind.LOST_REUSE in kinds
    if "check_refused(" in source:
        assert kinds >= {Kind.ACCEPTED, Kind.CRASH, Kind.WRONG_ANSWER}


def _outcome(signature: Signature) -> tuple[Verdict, Signature]:
    return (Verdict.FAILED if signature else Verdict.HOLDS), signature


def _is_known(row: Row, build: Build) -> bool:
    scenario, configuration = row.known_bug
    case = Case(
        scenario=scenario,
        configuration=configuration,
        model=row.model,
        memory=MODELS[row.model].memory,
        commit=build.capabilities.commit,
        number=build.number,
    )
    return find(load(), case) is not None
