"""The `llama-harness` command."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from harness.builds.build import Build
from harness.cli import COMMANDS, exit_code, main
from harness.commands.output import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NO_VERDICT,
    EXIT_NOT_OBTAINED,
    EXIT_PIPE,
    EXIT_USAGE,
)
from harness.errors import DoesNotRun, HarnessError, NotObtained, NoVerdict, UsageProblem
from harness.ledger import Ledger
from tests.harness.report.test_memory import FACTS
from tests.harness.test_ledger import VERDICT


def test_probe(llama_build: Build, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", str(llama_build.origin.path)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["commit"] == llama_build.capabilities.commit
    assert facts["sha256"] == llama_build.sha256


def test_a_bad_binary_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "/bin/true"]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("llama-harness: /bin/true is not a llama-server")
    assert err.count("\n") == 1


def test_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "--dir", str(tmp_path)]) == 0
    words = capsys.readouterr().out.split()
    assert words[::2] == ["--model", "--lora-scaled"]
    assert Path(words[1]).is_file()
    assert [Path(part.split(":")[0]).is_file() for part in words[3].split(",")] == [True, True]


@pytest.mark.parametrize("name", ["mamba2", "rerank"])
def test_another_model(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", name, "--dir", str(tmp_path)]) == 0
    assert f"/{name}-" in capsys.readouterr().out


def test_what_each_memory_kind_reused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", FACTS)
    ledger.add(VERDICT)
    ledger.end(0)
    ledger.close()
    assert main(["by-memory", str(ledger.path)]) == 0
    assert "| x | P again | 0/601 **lost** |" in capsys.readouterr().out
    assert main(["by-memory", str(tmp_path)]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("option", "there", "not_there"),
    [
        ((), "P again", "nothing"),
        (("--reasons",), "evicted from the prompt cache: 'Q' came", "by purpose"),
        (("--sums",), "by purpose", "'Q' came"),
    ],
)
def test_a_ledger_in_words(
    option: tuple[str, ...],
    there: str,
    not_there: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", FACTS)
    ledger.add(VERDICT)
    ledger.end(0)
    ledger.close()
    assert main(["ledger", *option, str(ledger.path)]) == 0
    out = capsys.readouterr().out
    assert there in out
    assert not_there not in out


def test_what_is_no_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", str(tmp_path / "none")]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", FACTS)
    for _ in range(2000):  # more than a pipe holds
        ledger.add(VERDICT)
    ledger.end(0)
    ledger.close()
    command = [sys.executable, "-m", "harness", "ledger", str(ledger.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == EXIT_PIPE


def test_without_a_command_the_help_is_printed_and_nothing_passes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert err == ""
    for name, command in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.help)}$", out, re.MULTILINE)


@pytest.mark.parametrize("command", ["builds", "pins"])
def test_without_a_verb_the_help_is_printed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command]) == EXIT_USAGE
    assert "list" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        *([name] for name in COMMANDS),
        *(["builds", verb] for verb in ("list", "prune")),
        *(["pins", verb] for verb in ("list", "check")),
    ],
)
def test_each_command_and_verb_is_described(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: llama-harness {' '.join(words)} ")
    assert re.search(r"\n\n[A-Z][^\n]+", out), "a description"


@pytest.mark.parametrize(
    ("word", "said"),
    [("chek", "did you mean check? "), ("xyzzy", "(commands: check, compare, ")],
)
def test_an_unknown_command_is_one_line(
    word: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_an_unknown_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["suite", "--where"])
    assert left.value.code == EXIT_USAGE
    said = "llama-harness suite: unrecognized arguments: --where (llama-harness suite --help lists "
    assert capsys.readouterr().err == f"{said}what it takes)\n"


def imported(*words: str) -> set[str]:
    code = f"import sys, harness.cli\nharness.cli.main({list(words)!r})\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


HEAVY = {"numpy", "gguf", "requests", "msgspec", "psutil", "pytest", "harness.session"}


@pytest.mark.parametrize("words", [["--version"], ["--help"], []])
def test_no_command_is_imported_to_say_which_there_are(words: list[str]) -> None:
    found = imported(*words)
    assert found.isdisjoint(HEAVY)
    assert {name for name in found if name.startswith("harness.commands.")} == {
        "harness.commands.output"
    }


@pytest.mark.parametrize("command", ["check", "compare", "get", "probe", "suite", "make-lora"])
def test_the_help_of_a_command_imports_no_more_than_its_options(command: str) -> None:
    assert imported(command, "--help").isdisjoint(HEAVY - {"msgspec", "psutil"})


@pytest.mark.parametrize("words", [["suite"], ["--version"], ["--help"], []])
@pytest.mark.parametrize(
    ("redirected", "said"), [(">&-", "stdout is closed"), (">/dev/full", "No space left")]
)
def test_output_that_cannot_be_written_is_one_line(
    words: list[str], redirected: str, said: str
) -> None:
    command = shlex.join([sys.executable, "-m", "harness", *words])
    done = subprocess.run(
        ["sh", "-c", f"{command} {redirected}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (EXIT_USAGE, 1)
    assert said in done.stderr


def test_an_interrupt_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    assert exit_code("program", interrupted) == EXIT_INTERRUPTED
    assert capsys.readouterr().err == "program: interrupted\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HarnessError("so"), EXIT_FAILED),
        (NotObtained("so"), EXIT_NOT_OBTAINED),
        (DoesNotRun("so"), EXIT_NOT_OBTAINED),
        (UsageProblem("so"), EXIT_USAGE),
        (NoVerdict("so"), EXIT_NO_VERDICT),
    ],
)
def test_an_error_is_one_line(
    error: HarnessError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing() -> int:
        raise error

    assert exit_code("program", failing) == code
    assert capsys.readouterr().err == "program: so\n"


def test_where_the_suite_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suite"]) == 0
    assert Path(capsys.readouterr().out.strip()) == Path(__file__).parents[1] / "cache"


def test_whoever_fetches_nothing_does_not_load_the_hubs_library() -> None:
    """It would cost every run a third of a second."""
    code = (
        "import sys, harness.plugin, harness.cli\n"
        "print(sorted({'huggingface_hub', 'httpx2', 'tqdm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("words", [["get", "b1"], ["probe", "b1"], ["check", "b1"]])
def test_a_build_that_does_not_run_here_is_one_line(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def obtain(*_: object) -> NoReturn:
        raise DoesNotRun("b1 has instructions that this CPU lacks", hint="take b10068")

    monkeypatch.setattr("harness.builds.obtain.obtain", obtain)
    monkeypatch.setattr("harness.commands.running.obtain", obtain)
    assert main(words) == EXIT_NOT_OBTAINED
    said = "llama-harness: b1 has instructions that this CPU lacks (take b10068)\n"
    assert capsys.readouterr() == ("", said)
