"""`llama-harness check` on real servers, as whoever deploys one runs it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.builds.build import Build
from harness.cli import main
from harness.commands.ledgers import selection_of
from harness.commands.output import EXIT_FAILED, EXIT_NO_VERDICT, EXIT_USAGE
from harness.ledger import Ledger, Run, Verdict, VerdictRow
from harness.models.synthetic.store import generated
from tests.harness.fronts.trial import write_front
from tests.harness.report.test_check import FACTS
from tests.harness.report.test_compare import BROKEN, BUILD
from tests.harness.test_compare import HOLDS

ONE = ("-k", "test_identical_request and completion and kvu")


def ledger(path: Path, *rows: VerdictRow, **changed: object) -> Path:
    written = Ledger(path, {**FACTS, **changed})
    for row in rows:
        written.add(row)
    written.end(0)
    written.close()
    return path


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
    assert "HOLDS  4 of 4     4         test_accounting.py::test_identical_request\n" in out
    assert "your -np 4 leaves out 4 configurations that need --parallel 1\n" in out
    answer = "may be deployed with these flags (-k only): 1 scenario holds"
    assert out.splitlines()[-1].endswith(answer)
    assert err.startswith("build: ")
    assert "100 % of 8 configurations" in err


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
        "accepted": 0,
        "holds": 1,
        "error": 0,
        "not_tested": 0,
    }
    assert "adapters: the model comes without" in facts["left_out"]


def test_what_fails(real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    front = write_front(tmp_path, real=real_server, fault="claims_less")
    options = ("-k", "test_identical_request and np1-kvu-completion", "--format=markdown")
    assert run(front, tmp_path, 'memory = "llama"', *options) == EXIT_FAILED
    out = capfd.readouterr().out
    assert "| FAILS | 1 of 1 |  | test_accounting.py::test_identical_request |" in out
    assert str(tmp_path) not in out
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
    assert '    "#30275",' in out
    assert f"llama-harness compare OLD {path} --config " in out
    assert "issues/30275" in out
    accepting = 'memory = "llama"\ndevice = "cpu"\naccept = ["#30275"]'
    assert run(path, tmp_path, accepting, *options) == 0
    out = capfd.readouterr().out
    assert "ACCEPTED  1 of 1               test_lora.py::test_article" in out


def test_a_server_that_does_not_start_says_why(
    real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = 'args = "--numa nowhere"\nmemory = "llama"'
    assert run(real_server, tmp_path, config, *ONE) == EXIT_NO_VERDICT
    out = " ".join(capfd.readouterr().out.split())
    assert "llama does not start with --numa nowhere: error while handling argument" in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            '"-np four -fa onn"',
            "args: -np four is not a number; -fa onn is not one of on, off, auto",
        ),
        ('["-c", "4096"]', "args: -c 4096 is too small: scenarios need 8192 tokens of context ("),
    ],
)
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one", "two"])
def test_args_that_are_wrong_are_refused_before_anything_starts(
    args: str,
    said: str,
    workers: tuple[str, ...],
    real_server: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    config = f'args = {args}\nmemory = "llama"'
    assert run(real_server, tmp_path, config, *ONE, *workers) == EXIT_USAGE
    out, err = capfd.readouterr()
    assert out == ""
    assert said in err.splitlines()[-1]


def test_all_that_do_not_start_are_one_row(
    real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The lines of a log have their times, which are no part of the reason."""
    config = 'args = "--chat-template-file /nowhere"\nmemory = "llama"'
    options = ("-k", "test_identical_request and completion and kvu")
    assert run(real_server, tmp_path, config, *options) == EXIT_NO_VERDICT
    out = capfd.readouterr().out
    assert out.count("does not start with") == 1


def test_nothing_reached_a_verdict(
    real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = 'args = "--parallel 3"\nmemory = "llama"'
    assert run(real_server, tmp_path, config, *ONE) == EXIT_NO_VERDICT
    out = capfd.readouterr().out
    out = " ".join(out.split())
    needs = "--parallel 1 (4), --parallel 4 (4)"
    assert f"your --parallel 3 leaves out 8 configurations that need {needs}" in out
    assert out.endswith("cannot say: no scenario reached a verdict")


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["run.jsonl", "-k", "x"], "-k can only be given with builds"),
        (["run.jsonl", "-n", "2", "--flavour=cpu"], "--flavour, -n can only be given with builds"),
        (["run.jsonl", "--report=x"], "--report can only be given with builds"),
        (["two.jsonl"], "two.jsonl holds 2 builds (b1, b2) (write a ledger for each)"),
        (["broken.jsonl"], "broken.jsonl is not whole (its run was broken off)"),
        (["none.jsonl"], "none.jsonl does not exist"),
        (["other.jsonl"], "other.jsonl is not a ledger"),
        (["old.jsonl"], "old.jsonl is a ledger of schema 1, not 3"),
        (["run.jsonl", "--config=args.toml"], "differ in args: -np 4 against -fa on"),
        (["run.jsonl", "--config=memory.toml"], "differ in the models: mamba2 against llama"),
        (["run.jsonl", "--config=device.toml"], "differ in device: cpu against auto"),
        (["run.jsonl", "--config=kinds.toml"], "memory: there is no kind of memory"),
    ],
)
def test_ledgers_that_cannot_be_used_are_one_line(
    options: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger(tmp_path / "run.jsonl", HOLDS)
    two = [{**BUILD, "id": name} for name in ("b1", "b2")]
    ledger(tmp_path / "two.jsonl", HOLDS, builds=two)
    whole = (tmp_path / "run.jsonl").read_text()
    (tmp_path / "broken.jsonl").write_text("".join(whole.splitlines(keepends=True)[:-1]))
    (tmp_path / "old.jsonl").write_text(whole.replace('"schema": 3', '"schema": 1', 1))
    (tmp_path / "other.jsonl").write_text('{"row": "verdict"}\n')
    (tmp_path / "args.toml").write_text('args = "-np 4"')
    (tmp_path / "memory.toml").write_text('args = "-fa on"\nmemory = "recurrent"')
    (tmp_path / "kinds.toml").write_text('args = "-fa on"\nmemory = "sliding"')
    (tmp_path / "device.toml").write_text('args = "-fa on"\nmemory = "dense"\ndevice = "cpu"')
    assert main(["check", *options]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
    assert "--llama-memory" not in err


def test_a_ledger_is_reported_on_without_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = replace(BROKEN, scenario="test_x.py::test_y", issue="#30275", verdict=Verdict.KNOWN_BUG)
    path = ledger(tmp_path / "run.jsonl", HOLDS, known)
    assert main(["check", str(path)]) == EXIT_FAILED
    assert capsys.readouterr().out.splitlines()[-1] == (
        "b1 should not be deployed with these flags: 1 scenario fails (1 known)"
    )
    config = tmp_path / "prod.toml"
    config.write_text('accept = ["#30275"]')
    assert main(["check", str(path), f"--config={config}"]) == 0
    config.write_text('accept = ["#30275"]\nargs = "-fa on"\nmemory = "dense"')
    assert main(["check", str(path), f"--config={config}", "--format=markdown"]) == 0
    assert str(tmp_path) not in capsys.readouterr().out


def test_the_ledger_of_a_run_can_be_kept(
    real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept, config = tmp_path / "kept.jsonl", 'memory = "llama"\ndevice = "cpu"'
    only = ("-k", "test_identical_request and np1-kvu-completion")
    assert run(real_server, tmp_path, config, *only, f"--report={kept}") == 0
    first = capfd.readouterr().out
    assert main(["check", str(kept), f"--config={tmp_path / 'prod.toml'}"]) == 0
    again = capfd.readouterr().out
    assert first.splitlines()[-1] == again.splitlines()[-1]
    assert run(real_server, tmp_path, config, f"--report={tmp_path}") == EXIT_USAGE
    assert "is a directory" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("argv", "left_out"),
    [
        (["pytest", "-k", "same_slot", "-n", "2"], ("-k 'same_slot'",)),
        (["pytest", "-ksame_slot", "-mnot slow"], ("-k 'same_slot'", "-m 'not slow'")),
        (["pytest", "-x", "--maxfail=2"], ("-x", "--maxfail=2")),
        (
            ["pytest", "-qx", "-vk", "same_slot", "--stepwise"],
            ("-x", "-k 'same_slot'", "--stepwise"),
        ),
        (["pytest", "tests/cache/test_lora.py"], ("naming test_lora.py",)),
        (["pytest", "a/test_x.py::test_y[z]"], ("naming test_x.py::test_y[z]",)),
        (["pytest", "/suite/tests/cache", "--llama-report=x.jsonl", "-q", "-v"], ()),
    ],
)
def test_what_the_run_of_a_ledger_left_out(argv: list[str], left_out: tuple[str, ...]) -> None:
    assert selection_of(Run({"argv": argv}, ())) == left_out


def test_a_ledger_of_a_part_of_the_suite_says_so(
    real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "run.jsonl"
    config = 'memory = "llama"'
    assert run(real_server, tmp_path, config, *ONE, "--report", str(ledger)) == 0
    capfd.readouterr()
    assert main(["check", str(ledger)]) == 0
    out = capfd.readouterr().out
    assert "(-k only)" in out.splitlines()[-1]


def test_a_ledger_of_an_interrupted_run_is_refused(
    real_server: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "run.jsonl"
    run(real_server, tmp_path, 'memory = "llama"', *ONE, "--report", str(ledger))
    text = ledger.read_text().replace('"exit_code": 0', '"exit_code": 2')
    ledger.write_text(text)
    capfd.readouterr()
    assert main(["check", str(ledger)]) == EXIT_USAGE
    assert "is not whole: pytest ended with exit code 2" in capfd.readouterr().err
