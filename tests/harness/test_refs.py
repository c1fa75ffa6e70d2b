"""`--llama-ref`: pytest on builds by name, from a small upstream."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.builds.fake_upstream import BROKEN, NO_PROMPT_CACHE, RIGHT, FakeUpstream
from tests.harness.fronts.trial import ROOT

PINNED = ("-k", "test_pinned_slot_looks_in_the_prompt_cache and np1-kvu-completion")
LLAMA = "--llama-memory=llama"


def suite(*options: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest in the clone, with the builds of the environment."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["plain", "n2"])
def test_two_builds_by_name(
    only_upstream: FakeUpstream, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    """Built once, on the controller; the one with the fault fails, on the CPU."""
    right = only_upstream.commit(RIGHT)
    head = only_upstream.pull_request(7, NO_PROMPT_CACHE)
    report = tmp_path / "ledger.jsonl"
    done = suite(
        *("--llama-ref=master", "--llama-ref=PR#7", LLAMA, f"--llama-report={report}"),
        *PINNED,
        *workers,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert ": 1 holds\n" in done.stdout
    assert ": 1 failed like nothing known\n" in done.stdout
    assert done.stderr.count("compiling llama-server:") == 2
    assert "by --llama-ref master: " in done.stdout
    # In the line that runs it again, which is about this build tomorrow, too.
    assert f"--llama-ref=PR#7@{head}'" in done.stdout
    first = json.loads(report.read_text().splitlines()[0])
    assert first["builds"][0]["commit"] == right[:12]


@pytest.mark.parametrize(
    ("ref", "said", "code"),
    [
        ("nonsense", "names no build", 4),
        ("PR30275", "did you mean PR#30275?", 4),
        ("./nowhere", "does not exist", 4),
        ("master", "does not build: ", 3),
        ("PR#9", "has no pull request 9", 3),
    ],
)
def test_what_is_no_build_and_what_cannot_be_had(
    only_upstream: FakeUpstream, ref: str, said: str, code: int
) -> None:
    only_upstream.commit(BROKEN)
    done = suite(f"--llama-ref={ref}", LLAMA, *PINNED)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_all_refs_are_read_before_one_is_built(only_upstream: FakeUpstream) -> None:
    only_upstream.commit()
    done = suite("--llama-ref=master", "--llama-ref=nonsense", LLAMA)
    assert done.returncode == 4
    assert "compiling" not in done.stderr


def test_path_that_get_printed_knows_its_number(only_upstream: FakeUpstream) -> None:
    """The binary says that it is build 1, which says nothing."""
    only_upstream.commit()
    get = [sys.executable, "-m", "harness", "get", "b1"]
    path = subprocess.run(get, capture_output=True, text=True, check=True).stdout.strip()
    done = suite(f"--llama-bin={path}", LLAMA, *PINNED)
    assert done.returncode == 0
    assert "llama-server b1 (" in done.stdout
