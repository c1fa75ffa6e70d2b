"""What pytest's own sections show beside the first screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.builds.build import Build
from tests.harness.fronts.trial import write_front
from tests.harness.test_plugin import LLAMA, suite

SOME = ("-k", "test_article and np1-kvu", LLAMA, "--known-bugs=fail")
"""Four scenarios that fail as a known bug does."""


@pytest.fixture(autouse=True)
def prebuilt(llama_build: Build) -> None:
    if not llama_build.origin.provided:
        pytest.skip("known bugs are recorded for the wheel")


def sections(out: str) -> list[str]:
    """Return the failures that are shown in full."""
    return re.findall(r"^_+ (test_\S+) _+$", out, re.MULTILINE)


def listed(out: str) -> int:
    """Return how many tests pytest's short summary lists."""
    return len(re.findall(r"^FAILED ", out, re.MULTILINE))


def test_failures_like_a_known_bug_are_counted_and_not_shown() -> None:
    done = suite(*SOME)
    assert done.returncode == 1
    assert ": 4 failed, all like 1 known bug, nothing new\n" in done.stdout
    assert (sections(done.stdout), listed(done.stdout)) == ([], 0)
    assert re.search(r"=+ 4 failed, \d+ deselected", done.stdout)


@pytest.mark.parametrize(
    ("option", "shown", "count"),
    [("--tb=short", 4, 0), ("--tb=long", 4, 0), ("--tb=no", 0, 0), ("-rf", 0, 4), ("-rA", 0, 4)],
)
def test_who_says_how_is_obeyed(option: str, shown: int, count: int) -> None:
    out = suite(*SOME, option).stdout
    assert (len(sections(out)), listed(out)) == (shown, count)
    assert ": 4 failed, all like 1 known bug, nothing new\n" in out


def test_one_line_a_failure() -> None:
    lines = suite(*SOME, "--tb=line").stdout.splitlines()
    told = [line for line in lines if "glass + tail: lost_reuse (test_article" in line]
    assert len(told) == 4
    assert not any("run again" in line for line in lines)


def test_few_failures_are_shown_whatever_they_are_like() -> None:
    out = suite(*SOME[:1], "test_article and np1-kvu-chat", *SOME[2:]).stdout
    assert len(sections(out)) == 2


def test_one_example_of_what_is_new(real_server: Path, tmp_path: Path) -> None:
    """A front claims that nothing is reused: several scenarios fail so, one stands for all."""
    front = write_front(tmp_path, real=real_server, fault="claims_less")
    file = "tests/cache/test_accounting.py"
    some = "identical or changed_token or streams"
    options = ("-k", f"({some}) and np1-kvu-completion", LLAMA, f"--llama-bin={front}")
    out = suite(file, *options).stdout
    (count,) = re.findall(r": (\d+) failed like nothing known", out)
    assert int(count) >= 4
    assert len(sections(out)) == 1
    assert len(re.findall("^NEW ", out, re.MULTILINE)) >= 2
    assert len(re.findall("^run again: ", out, re.MULTILINE)) == 1


def test_the_whole_table_comes_with_v(tmp_path: Path) -> None:
    """And from the ledger afterwards."""
    ledger = tmp_path / "ledger.jsonl"
    out = suite(*SOME, "-v", f"--llama-report={ledger}").stdout
    table = re.search(r"^scenario +cache_n/prompt_n .*?^scenarios: 4 failed$", out, re.M | re.S)
    assert table is not None
    assert f"more: llama-harness ledger {ledger} --table" in out


@pytest.mark.parametrize("columns", ["80", "120", "200"])
def test_the_screen_fits_the_terminal(columns: str) -> None:
    options = ("-k", "np1-kvu-completion and article", LLAMA, "-v")
    out = suite(*options, environ={"COLUMNS": columns}).stdout
    screen = out.partition("llama-server KV-cache reuse")[2].splitlines()[1:]
    assert max(map(len, screen)) <= int(columns)
    assert any(line.startswith("scenario ") for line in screen)
