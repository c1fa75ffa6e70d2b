"""Known bugs: matched by scenario, configuration and build; accepted by their exact signature."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.builds.build import Build
from harness.errors import HarnessError, UsageProblem
from harness.known_bugs import Case, KnownBug, alike, conclude, find, load
from harness.ledger import Verdict
from harness.memory import Memory
from harness.models.synthetic.store import MODELS

SUITE = Path(__file__).parents[1] / "cache"

BUG = KnownBug(
    issue="#1",
    title="wrong",
    what="Something is wrong.",
    scenario="test_lora.py::test_x",
    configurations=("np1-*", "np4-kvu-*"),
    models=(),
    signature=("a: lost_reuse", "b: wrong_answer"),
    commits=("7e4c0a9",),
    builds=(10000, 10434),
)


CASE = Case(
    scenario="test_lora.py::test_x",
    configuration="np1-kvu-chat",
    model="gptoss",
    memory=Memory.SWA,
    commit="7e4c0a9",
    number=None,
)


@pytest.mark.parametrize(
    ("changed", "matches"),
    [
        ({}, True),
        ({"configuration": "np4-kvu-chat", "commit": "7e4c0a9fee"}, True),
        ({"configuration": "np4-nokvu-chat"}, False),
        ({"scenario": "test_lora.py::test_y"}, False),
        ({"commit": "aaaaaaa"}, False),
        ({"commit": "aaaaaaa", "number": 10200}, True),
        ({"commit": None, "number": 10435}, False),
        ({"commit": None}, False),
    ],
)
def test_matching(changed: dict[str, Any], matches: bool) -> None:
    assert (find([BUG], replace(CASE, **changed)) is BUG) is matches


@pytest.mark.parametrize(
    ("models", "matches"),
    [(("gptoss",), True), (("swa",), True), (("dense", "swa"), True), (("gemma3", "dense"), False)],
)
def test_models_are_named_or_meant_by_their_memory(models: tuple[str, ...], matches: bool) -> None:
    bug = replace(BUG, models=models)
    assert (find([bug], CASE) is bug) is matches


def test_another_build_that_shows_just_the_same() -> None:
    case = replace(CASE, commit="aaaaaaa")
    assert alike([BUG], case, BUG.signature) is BUG
    assert alike([BUG], case, BUG.signature[:1]) is None
    assert alike([BUG], replace(case, configuration="np4-nokvu-chat"), BUG.signature) is None


def test_two_entries_for_one_scenario_are_a_mistake() -> None:
    with pytest.raises(HarnessError, match="two known bugs"):
        find([BUG, BUG], CASE)


@pytest.mark.parametrize(
    ("signature", "known", "verdict"),
    [
        ((), None, Verdict.HOLDS),
        (("a: lost_reuse",), None, Verdict.FAILED),
        (BUG.signature, BUG, Verdict.KNOWN_BUG),
        ((), BUG, Verdict.KNOWN_BUG_GONE),
        (("a: lost_reuse",), BUG, Verdict.FAILED),
        (("a: lost_reuse", "b: crash"), BUG, Verdict.FAILED),
        ((*BUG.signature, "c: crash"), BUG, Verdict.FAILED),
    ],
)
def test_exactly_the_signature_is_accepted(
    signature: tuple[str, ...], known: KnownBug | None, verdict: Verdict
) -> None:
    assert conclude(signature, known) is verdict


def test_every_entry_that_comes_along_names_a_scenario_that_exists() -> None:
    functions = {
        f"{path.name}::{node.name}"
        for path in SUITE.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert {bug.scenario for bug in load()} <= functions


def test_every_pattern_matches_a_test_and_no_test_has_two_entries(
    llama_build: Build,
) -> None:
    """Held against the ids pytest collects."""
    command = [sys.executable, "-m", "pytest", "tests/cache", "--collect-only", "-q"]
    command += ["-p", "no:cacheprovider", f"--llama-bin={llama_build.origin.path}"]
    command += ["--llama-memory=all"]
    listed = subprocess.run(command, cwd=SUITE.parents[1], capture_output=True, text=True)
    ids = re.findall(r"tests/cache/(test_\w+\.py::\w+)(?:\[(.*)\])?$", listed.stdout, re.MULTILINE)
    assert len(ids) > 100
    cases = [_case(scenario, brackets) for scenario, brackets in ids]
    bugs = load()
    for commit in {commit for bug in bugs for commit in bug.commits}:
        for case in cases:
            find(bugs, replace(case, commit=commit))  # raises for two
    for bug in bugs:
        for pattern, model in itertools.product(bug.configurations, bug.models or ("dense",)):
            one = replace(bug, configurations=(pattern,), models=(model,))
            assert any(one.concerns(case) for case in cases), (bug, pattern, model)


def _case(scenario: str, brackets: str) -> Case:
    model, _, configuration = brackets.partition("-")
    return replace(
        CASE,
        scenario=scenario,
        configuration=configuration,
        model=model,
        memory=MODELS[model].memory,
    )


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bugs.toml"
    path.write_text("[[bug]]\nissue = '#1'\n")
    with pytest.raises(UsageProblem, match=r"bugs\.toml is not a list of known bugs"):
        load(path)


VALID = {
    "issue": "'#1'",
    "title": "'w'",
    "what": "'wrong'",
    "commits": "['7e4c0a9']",
    "builds": "'5..9'",
}
VALID_WHERE = {
    "scenario": "'s'",
    "configurations": "['*']",
    "models": "['swa', 'lfm2']",
    "fails": "['a: hang']",
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"commits": "['']"},
        {"commits": "'7e4c0a9'"},
        {"commits": "[]"},
        {"commits": "[1]"},
        {"configurations": "'np1-*'"},
        {"models": "['gemma4']"},
        {"models": "[]"},
        {"fails": "[]"},
        {"fails": "['a: lostreuse']"},
        {"fails": "['hang']"},
        {"builds": "'9..5'"},
        {"builds": "5"},
        {"build": "'5..9'"},
        {"scenarios": "'s'"},
        {"scenario": "''"},
        {"issue": "5"},
    ],
    ids=str,
)
def test_a_mistake_in_an_entry_is_none_that_never_matches(
    tmp_path: Path, wrong: dict[str, str]
) -> None:
    path = tmp_path / "bugs.toml"
    where = VALID_WHERE | {k: v for k, v in wrong.items() if k in VALID_WHERE}
    bug = VALID | {k: v for k, v in wrong.items() if k not in VALID_WHERE}
    for entry, whole in (((bug, where), False), ((VALID, VALID_WHERE), True)):
        lines = ["[[bug]]", *(f"{k} = {v}" for k, v in entry[0].items()), "[[bug.where]]"]
        path.write_text("\n".join([*lines, *(f"{k} = {v}" for k, v in entry[1].items())]))
        if whole:
            assert len(load(path)) == 1
        else:
            with pytest.raises(UsageProblem, match="not a list of known bugs"):
                load(path)


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="not a list of known bugs"):
        load(tmp_path / "none.toml")


def test_number_ranges_are_read(tmp_path: Path) -> None:
    path = tmp_path / "bugs.toml"
    path.write_text(
        "[[bug]]\nissue='#1'\ntitle='w'\nwhat='w'\ncommits=['abc']\nbuilds='5..9'\n"
        "[[bug.where]]\nscenario='s'\nconfigurations=['*']\nfails=['b: crash', 'a: hang']\n"
    )
    (bug,) = load(path)
    assert bug.builds == (5, 9)
    assert bug.signature == ("a: hang", "b: crash")
