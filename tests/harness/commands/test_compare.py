"""`llama-harness compare` on real servers, one of them behind a front with a fault."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.cli import main
from harness.commands.output import EXIT_FAILED, EXIT_NO_VERDICT, EXIT_USAGE
from tests.harness.fronts.trial import write_front

ONE = ("--memory=llama", "-k", "test_identical_request and np1-kvu-completion")


@pytest.fixture
def front(real_server: Path, tmp_path: Path) -> Path:
    return write_front(tmp_path, real=real_server, fault="claims_less")


def run(*words: str | Path) -> int:
    return main(["compare", *map(str, words)])


def test_what_broke_is_shown_and_said_by_the_exit_code(
    real_server: Path, front: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(real_server, front, *ONE) == EXIT_FAILED
    out, err = capfd.readouterr()
    row = out[out.index("broken ") :]
    for part in ("test_accounting.py::test_identical_request", "P again", "lost_reuse", "400/1 ->"):
        assert part in row
    assert f", {front}" in err
    assert out.endswith("broken: 1, unchanged: 0\n")


def test_what_is_fixed(front: Path, real_server: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(front, real_server, *ONE, "--format=markdown") == 0
    out = capfd.readouterr().out
    assert "| fixed | test_accounting.py::test_identical_request | P again | " in out


def test_a_build_and_itself(
    real_server: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(real_server.parent)
    assert run(f"./{real_server.name}", real_server, *ONE, "--format=json", "-n", "2") == 0
    facts = json.loads(capfd.readouterr().out)
    assert facts["changes"] == []
    assert facts["counts"]["unchanged"] == 1
    assert facts["base"]["path"] == facts["head"]["path"] == str(real_server.absolute())


def test_with_ones_own_flags(
    real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prod.toml"
    file.write_text('args = "-np 4"\nmemory = "llama"\ndevice = "cpu"')
    options = ("-k", "test_identical_request and completion and kvu", f"--config={file}")
    assert run(real_server, real_server, *options) == 0
    assert "unchanged: 4, no verdict on either: 4" in capfd.readouterr().out


def test_ledgers_in_place_of_builds(
    real_server: Path, front: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept" / "both"
    assert run(real_server, front, *ONE, f"--report={kept}") == EXIT_FAILED
    first = capfd.readouterr().out
    base, head = kept / "base.jsonl", kept / "head.jsonl"
    assert run(base, head) == EXIT_FAILED
    out, err = capfd.readouterr()
    assert (out, err) == (first, "")
    assert run(head, base, "--format=markdown") == 0
    assert str(tmp_path) not in capfd.readouterr().out
    assert run(base, base) == EXIT_USAGE
    assert "was given twice" in capfd.readouterr().err
    assert run(base, front, "-k", "x") == EXIT_USAGE
    assert "-k can only be given with builds, and " in capfd.readouterr().err
    assert run(base, head, "-n", "2", "--memory=llama") == EXIT_USAGE
    assert "--memory, -n can only be given with builds, and " in capfd.readouterr().err


def test_nothing_to_compare(real_server: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(real_server, real_server, "-k", "no_such_scenario") == EXIT_NO_VERDICT
    assert "nothing was compared" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["nowhere"], "'nowhere' names no build"),
        (["./nowhere"], "nowhere does not exist"),
        (["/bin/true"], "/bin/true is not a llama-server"),
        (["--memory=nonsense"], "no kind of memory, and no model, called nonsense"),
        (["-k", "and and"], "Wrong expression passed to '-k'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    options: Sequence[str], words: str, real_server: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = [str(real_server), *([str(real_server)] if options[0].startswith("-") else [])]
    assert run(*given, *options) == EXIT_USAGE
    out, err = capfd.readouterr()
    (line,) = [line for line in err.splitlines() if line.startswith("llama-harness: ")]
    assert words in line
    assert out == ""


@pytest.mark.parametrize("options", [["-n", "0"], ["-n", "x"], ["--format=xml"], []])
def test_bad_options(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run("a", *(["b"] if options else []), *options)
    assert left.value.code == EXIT_USAGE
    assert capsys.readouterr().err.splitlines()[-1].startswith("llama-harness compare: ")
