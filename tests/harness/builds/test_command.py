from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.builds.base import NotHere
from harness.builds.command import Runner
from harness.server.guard import Guard


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    with Guard() as guard:
        yield Runner(guard=guard, log=tmp_path / "logs" / "log")


def test_what_was_said_is_told_and_logged(runner: Runner) -> None:
    result = runner.run("sh", "-c", "echo one; echo two >&2; exit 3")
    assert (result.returncode, result.text, result.ok) == (3, "one\ntwo\n", False)
    assert runner.run("echo", "three").text == "three\n"
    assert runner.log.read_text() == (
        "$ sh -c 'echo one; echo two >&2; exit 3'\none\ntwo\n$ echo three\nthree\n"
    )


def test_error_is_the_line_that_says_so(runner: Runner) -> None:
    said = "echo 'fatal: it is no repository'; echo; echo 'and the repository exists.'; exit 128"
    assert runner.run("sh", "-c", said).error == "it is no repository"
    assert runner.run("sh", "-c", "echo so; exit 1").error == "so"
    assert runner.run("sh", "-c", "exit 1").error == "no output, exit code 1"


@pytest.mark.parametrize("why", ["No space left on device", "Disk quota exceeded"])
def test_full_disk_is_nobodys_fault(runner: Runner, why: str) -> None:
    with pytest.raises(NotHere, match="the disk is full") as refusal:
        runner.run("sh", "-c", f"echo 'fatal error: error writing to /x.s: {why}'; exit 1")
    assert refusal.value.trouble
    assert runner.run("echo", f"x: {why}").ok  # it worked all the same


def test_program_that_hangs_or_is_not_there(runner: Runner) -> None:
    with pytest.raises(NotHere, match=r"sleep gave no answer in 0\.1 s"):
        runner.run("sleep", "60", seconds=0.1)
    with pytest.raises(NotHere, match="nonesuch cannot be run"):
        runner.run("nonesuch")


def test_log_has_no_password_and_is_for_nobody_else(runner: Runner) -> None:
    runner.run("true", "https://name:secret@host/x")
    assert "secret" not in runner.log.read_text()
    assert runner.log.stat().st_mode & 0o077 == 0


def test_another_repository_around_us_is_not_meant(tmp_path: Path) -> None:
    with Guard() as guard:
        environ = {**os.environ, "GIT_DIR": "/nowhere"}
        runner = Runner(guard=guard, log=tmp_path / "log", environ=environ)
        assert runner.run("git", "init", "--quiet", tmp_path / "new").ok
        assert runner.run("git", "-C", tmp_path / "new", "rev-parse", "--git-dir").ok


def test_output_is_watched_while_it_comes(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program goes on once its first line was seen, and silence is seen as well."""
    monkeypatch.setattr("harness.builds.command._LOOK_SECONDS", 0.01)
    go = tmp_path / "go"
    seen: list[str] = []

    def watch(text: str) -> None:
        seen.append(text)
        if "".join(seen) == "[1/2] one\n" and not text:
            go.touch()

    script = f"echo '[1/2] one'; until [ -e {go} ]; do sleep 0.01; done; echo '[2/2] two'"
    result = runner.run("sh", "-c", script, watch=watch)
    assert result.text == "[1/2] one\n[2/2] two\n"
    assert "" in seen


def test_program_that_is_watched_may_hang_too(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.builds.command._LOOK_SECONDS", 0.01)
    seen: list[str] = []
    with pytest.raises(NotHere, match=r"sleep gave no answer in 0\.1 s"):
        runner.run("sleep", "60", seconds=0.1, watch=seen.append)
    assert seen
