"""The words of `--llama-launcher`."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageProblem
from harness.server.launcher import parse_launcher

BATCH = ("-batch", "-ex", "run", "-ex", "thread apply all backtrace")


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it but three programs, so that none need be installed."""
    for name in ("gdb", "rr", "taskset"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("text", [None, ""])
def test_none(text: str | None) -> None:
    assert parse_launcher(text) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("taskset -c 0", ("taskset", "-c", "0")),
        ("rr record", ("rr", "record")),
        ("rr record -o '/some where/else'", ("rr", "record", "-o", "/some where/else")),
        (r"rr record -o /some\ where", ("rr", "record", "-o", "/some where")),
    ],
)
def test_words_as_a_shell_reads_them(text: str, words: tuple[str, ...]) -> None:
    assert parse_launcher(text) == words


def test_plain_gdb_runs_in_batch_and_prints_backtraces() -> None:
    assert parse_launcher("gdb --args") == ("gdb", *BATCH, "--args")


def test_gdb_by_its_path(programs: Path) -> None:
    assert parse_launcher(f"{programs}/gdb -q --args") == (
        f"{programs}/gdb",
        *BATCH,
        "-q",
        "--args",
    )


@pytest.mark.parametrize(
    "script",
    ["-batch", "--batch", "-x a.gdb", "--command a.gdb", "--command=a.gdb", "-ex=run", "-ex run"],
)
def test_gdb_with_a_script_of_its_own_is_left_alone(script: str) -> None:
    text = f"gdb {script} --args"
    assert parse_launcher(text) == tuple(text.split())


def test_a_relative_path_is_made_absolute(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is started in another directory than the one the user is in."""
    monkeypatch.chdir(programs)
    assert parse_launcher("./rr record") == (str(programs / "rr"), "record")


@pytest.mark.parametrize(
    "text", ["no-such-program --args", "/no/such/program", "   "], ids=["name", "path", "blank"]
)
def test_unknown_program(text: str) -> None:
    with pytest.raises(UsageProblem, match="no such program") as caught:
        parse_launcher(text)
    assert "--llama-launcher" in caught.value.message
    assert caught.value.hint


def test_a_file_that_is_no_program(programs: Path) -> None:
    (programs / "rr").chmod(0o644)
    with pytest.raises(UsageProblem, match="no such program"):
        parse_launcher("rr record")


def test_quotes_that_do_not_close() -> None:
    with pytest.raises(UsageProblem, match="No closing quotation"):
        parse_launcher("gdb 'a")
