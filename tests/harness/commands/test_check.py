"""`llama-harness check` on real servers, as whoever deploys one runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.builds.build import Build
from harness.cli import main
from harness.commands.output import EXIT_FAILED, EXIT_NO_VERDICT, EXIT_USAGE
from harness.models.synthetic.store import generated
from tests.harness.fronts.trial import write_front

ONE = ("-k", "test_identical_request and completion and kvu")


def run(ref: Path, directory: Path, config: str, *options: str) -> int:
    file = directory / "prod.toml"
    file.write_text(config)
    return main(["check", str(ref), f"--config={file}", *options])


def test_with_ones_own_flags(
    real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """More prompt cache than is needed contradicts nothing; a number of slots does."""
    config = 'args = "-fa on --cache-ram 8192 -np 4"\nmemory = "llama"\ndevice = "cpu"'
    assert run(real_server, tmp_path, config, *ONE) == 0
    out, err = capfd.readouterr()
    assert "server arguments: -fa on --cache-ram 8192 -np 4\n" in out
    assert "HOLDS  test_accounting.py::test_identical_request  4 of 8, 4 not tested\n" in out
    assert "not tested: 4 configurations: needs --parallel 1, args gives -np 4\n" in out
    assert err.startswith("build: ")


def test_with_ones_own_model(
    real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chat.gguf").symlink_to(generated().file.path)
    options = ("-k", "test_identical_request and np1-kvu-completion", "--format=json")
    assert run(real_server, tmp_path, 'model = "chat.gguf"\ndevice = "cpu"', *options) == 0
    facts = json.loads(capfd.readouterr().out)
    assert [model["name"] for model in facts["models"]] == ["chat.gguf"]
    assert facts["counts"]["scenarios"] == {
        "fails": 0,
        "error": 0,
        "accepted": 0,
        "holds": 1,
        "not_tested": 0,
    }
    assert "adapters: the model comes without" in facts["left_out"]


def test_what_fails(real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    front = write_front(tmp_path, real=real_server, fault="claims_less")
    options = ("-k", "test_identical_request and np1-kvu-completion", "--format=markdown")
    assert run(front, tmp_path, 'memory = "llama"', *options) == EXIT_FAILED
    out = capfd.readouterr().out
    assert "| FAILS | test_accounting.py::test_identical_request | 1 of 1 |" in out
    assert "| P again: lost_reuse |" in out


def test_a_known_bug_fails_and_is_named(
    llama_build: Build, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if not llama_build.origin.provided:
        pytest.skip("known bugs are recorded for the wheel")
    options = ("-k", "article and np1-kvu-completion-wide0")
    path = llama_build.origin.path
    assert run(path, tmp_path, 'memory = "llama"\ndevice = "cpu"', *options) == EXIT_FAILED
    out = capfd.readouterr().out
    assert "glass + tail: lost_reuse  #30275" in out
    assert "issues/30275" in out
    accepting = 'memory = "llama"\ndevice = "cpu"\naccept = ["#30275"]'
    assert run(path, tmp_path, accepting, *options) == 0
    out = capfd.readouterr().out
    assert "ACCEPTED  test_lora.py::test_article  1 of 1" in out


def test_a_server_that_does_not_start_says_why(
    real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = 'args = "-fa onn"\nmemory = "llama"'
    assert run(real_server, tmp_path, config, *ONE) == EXIT_NO_VERDICT
    out = capfd.readouterr().out
    assert "llama-server ended with exit code 1: error" in out
    assert "onn" in out


def test_all_that_do_not_start_are_one_row(
    real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The lines of a log have their times, which are no part of the reason."""
    config = 'args = "--chat-template-file /nowhere"\nmemory = "llama"'
    options = ("-k", "test_identical_request and completion and kvu")
    assert run(real_server, tmp_path, config, *options) == EXIT_NO_VERDICT
    out = capfd.readouterr().out
    assert out.count("llama-server ended with exit code") == 1


def test_nothing_reached_a_verdict(
    real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = 'args = "--ctx-size 4096"\nmemory = "llama"'
    assert run(real_server, tmp_path, config, *ONE) == EXIT_NO_VERDICT
    out = capfd.readouterr().out
    assert "needs --ctx-size 8192, args gives --ctx-size 4096" in out
    assert "nothing was found out" in out


def test_without_a_file(real_server: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(real_server), "-k", "no_such_scenario"]) == EXIT_NO_VERDICT
    assert "server arguments: the defaults" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("args = ", "prod.toml is not TOML"),
        (
            'args = "-m x --host 0.0.0.0 -np 4 --port 80"',
            "args may not give -m, --host, --port (",
        ),
        ('args = "--no-such-flag"', "args: this llama-server has no flag --no-such-flag"),
        ('model = "none.gguf"', "none.gguf: no such file"),
        ('lora = ["a.gguf"]', "lora needs model=PATH"),
        ('memory = "dense"\nmodel = "stories15m-moe"', "memory chooses among generated models"),
        ('memory = "sliding"', "called sliding"),
        ('device = "cpu"\nargs = "-dev none"', "args and device both say which device"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    config: str, words: str, real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(real_server, tmp_path, config) == EXIT_USAGE
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
    assert "--llama-" not in err
