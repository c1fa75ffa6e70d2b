"""Teeth: each scenario fails where its fault is present, and just so.

The faults are a front's (see `tests/harness/fronts`). What a fault does to each scenario is worked
out from what the fault is and what the scenario claims (`tests/harness/teeth`); whatever is not in
a row must hold.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
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

_SIDE_BY_SIDE = 4
"""How many rows are tried by one run of pytest, at most."""


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of a table that one run of pytest can try, with a front for each."""

    family: Family
    rows: tuple[Row, ...]

    @property
    def id(self) -> str:
        """The family, the faults, and what all rows have in common."""
        first = self.rows[0]
        return "-".join(
            (
                self.family.name.removeprefix("test_"),
                "+".join(row.fault for row in self.rows),
                first.configuration or "slow",
                *([first.model] if first.model != "llama" else []),
            )
        )


def _groups(family: Family) -> list[Group]:
    """Group rows that differ in nothing but the fault.

    Groups are small enough for the workers of pytest-xdist to end at about the same time.
    """
    alike: dict[tuple[object, ...], list[Row]] = {}
    for row in family.table:
        key = row.configuration, row.only, row.options, row.model
        alike.setdefault(key, []).append(row)
    return [
        Group(family, tuple(rows[start : start + _SIDE_BY_SIDE]))
        for rows in alike.values()
        for start in range(0, len(rows), _SIDE_BY_SIDE)
    ]


GROUPS = [
    pytest.param(
        group,
        id=group.id,
        marks=[] if group.rows[0].configuration else [pytest.mark.slow],
    )
    for family in FAMILIES
    for group in _groups(family)
]

FUNCTIONS = [
    pytest.param(family, function, id=f"{family.name}-{name}")
    for family in FAMILIES
    for name, function in family.functions.items()
]


@pytest.mark.parametrize("group", GROUPS)
def test_faults_show_just_so(
    group: Group, real_server: Path, llama_build: Build, tmp_path: Path
) -> None:
    rows = [row for row in group.rows if not any(row.known_bug) or _is_known(row, llama_build)]
    if not rows:
        pytest.skip("this fault is a real server's own, and this build is not known to have it")
    first = rows[0]
    fronts = [write_front(tmp_path, real=real_server, fault=row.fault) for row in rows]
    trial = run(
        fronts,
        group.family.name,
        first.configuration,
        model=first.model,
        only=first.only,
        options=first.options,
    )
    for row, shown in zip(rows, trial.by_front.values(), strict=True):
        run_in = {name.partition("-")[0] for name in shown}
        assert run_in == group.family.run_in(row), f"{row.fault}: {trial.output}"
    found = {row.fault: shown for row, shown in zip(rows, trial.by_front.values(), strict=True)}
    assert found == {
        row.fault: {name: _outcome(row.expected(name)) for name in found[row.fault]} for row in rows
    }
    assert all(any(signature for _, signature in shown.values()) for shown in found.values())
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
