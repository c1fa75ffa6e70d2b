"""Known bugs: matched by scenario, configuration and build; accepted by their exact signature."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.builds.build import Build
from harness.errors import HarnessError, UsageProblem
from harness.known_bugs import KnownBug, alike, conclude, find, load
from harness.ledger import Verdict

SUITE = Path(__file__).parents[1] / "cache"

BUG = KnownBug(
    issue="#1",
    what="Something is wrong.",
    scenario="test_lora.py::test_x",
    configurations=("np1-*", "np4-kvu-*"),
    signature=("a: lost_reuse", "b: wrong_answer"),
    commits=("7e4c0a9",),
    builds=(10000, 10434),
)


@pytest.mark.parametrize(
    ("scenario", "configuration", "commit", "number", "matches"),
    [
        ("test_lora.py::test_x", "np1-kvu-chat", "7e4c0a9", None, True),
        ("test_lora.py::test_x", "np4-kvu-chat", "7e4c0a9fee", None, True),
        ("test_lora.py::test_x", "np4-nokvu-chat", "7e4c0a9", None, False),
        ("test_lora.py::test_y", "np1-kvu-chat", "7e4c0a9", None, False),
        ("test_lora.py::test_x", "np1-kvu-chat", "aaaaaaa", None, False),
        ("test_lora.py::test_x", "np1-kvu-chat", "aaaaaaa", 10200, True),
        ("test_lora.py::test_x", "np1-kvu-chat", None, 10435, False),
        ("test_lora.py::test_x", "np1-kvu-chat", None, None, False),
    ],
)
def test_matching(
    scenario: str, configuration: str, commit: str | None, number: int | None, matches: bool
) -> None:
    found = find([BUG], scenario, configuration, commit, number)
    assert (found is BUG) is matches


def test_another_build_that_shows_just_the_same() -> None:
    where = ("test_lora.py::test_x", "np1-kvu-chat")
    assert alike([BUG], *where, BUG.signature) is BUG
    assert alike([BUG], *where, BUG.signature[:1]) is None
    assert alike([BUG], where[0], "np4-nokvu-chat", BUG.signature) is None


def test_two_entries_for_one_scenario_are_a_mistake() -> None:
    with pytest.raises(HarnessError, match="two known bugs"):
        find([BUG, BUG], "test_lora.py::test_x", "np1-x", "7e4c0a9", None)


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
    listed = subprocess.run(command, cwd=SUITE.parents[1], capture_output=True, text=True)
    ids = re.findall(r"tests/cache/(test_\w+\.py::\w+)(?:\[(.*)\])?$", listed.stdout, re.MULTILINE)
    assert len(ids) > 100
    bugs = load()
    for commit in {commit for bug in bugs for commit in bug.commits}:
        for scenario, configuration in ids:
            find(bugs, scenario, configuration, commit, None)  # raises for two
    for bug in bugs:
        for pattern in bug.configurations:
            one = replace(bug, configurations=(pattern,))
            matched = (one.matches(name, where, bug.commits[0], None) for name, where in ids)
            assert any(matched), (bug, pattern)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bugs.toml"
    path.write_text("[[bug]]\nissue = '#1'\n")
    with pytest.raises(UsageProblem, match=r"bugs\.toml is not a list of known bugs"):
        load(path)


VALID = {"issue": "'#1'", "what": "'wrong'", "commits": "['7e4c0a9']", "builds": "'5..9'"}
VALID_WHERE = {"scenario": "'s'", "configurations": "['*']", "fails": "['a: hang']"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"commits": "['']"},
        {"commits": "'7e4c0a9'"},
        {"commits": "[]"},
        {"commits": "[1]"},
        {"configurations": "'np1-*'"},
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
        "[[bug]]\nissue='#1'\nwhat='w'\ncommits=['abc']\nbuilds='5..9'\n"
        "[[bug.where]]\nscenario='s'\nconfigurations=['*']\nfails=['b: crash', 'a: hang']\n"
    )
    (bug,) = load(path)
    assert bug.builds == (5, 9)
    assert bug.signature == ("a: hang", "b: crash")
