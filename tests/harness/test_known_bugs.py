"""Known bugs: matched by scenario, configuration and build; accepted by their exact signature."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.known_bugs import KnownBug, conclude, find, load
from harness.ledger import Verdict

SUITE = Path(__file__).parents[1] / "cache"

BUG = KnownBug(
    issue="#1",
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


def test_no_configuration_is_claimed_twice() -> None:
    claimed = Counter(
        (bug.scenario, pattern, commit)
        for bug in load()
        for pattern in bug.configurations
        for commit in bug.commits
    )
    assert [claim for claim, times in claimed.items() if times > 1] == []


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bugs.toml"
    path.write_text("[[bug]]\nissue = '#1'\n")
    with pytest.raises(HarnessError, match=r"bugs\.toml is not a list of known bugs"):
        load(path)


def test_number_ranges_are_read(tmp_path: Path) -> None:
    path = tmp_path / "bugs.toml"
    path.write_text(
        "[[bug]]\nissue='#1'\ncommits=[]\nbuilds='5..9'\n"
        "[[bug.where]]\nscenario='s'\nconfigurations=['*']\nfails=['b: crash', 'a: hang']\n"
    )
    (bug,) = load(path)
    assert bug.builds == (5, 9)
    assert bug.signature == ("a: hang", "b: crash")
