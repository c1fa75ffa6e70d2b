"""`--llama-url`: scenarios on a server that a person has started."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Unpack

import pytest

from harness.bench import Bench
from harness.client import Client
from harness.models.synthetic.store import generated
from harness.server.config import ConfigFields, flags_of
from tests.cache.conftest import CACHE_RAM, SIMILAR
from tests.harness.by_hand import ByHand, Started
from tests.harness.test_plugin import LLAMA, rows, suite, write_scenario

CONTROL = "test_one_setting_everywhere and one_everywhere and np1-kvu"

StartAs = Callable[..., Started]
"""Starts a server by hand as a configuration has it: its adapters, and the fields of `start`."""


@pytest.fixture
def start_as(by_hand: ByHand, llama_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> StartAs:
    # pytester gives its runs another home, and they are to find the model where it is here.
    monkeypatch.setenv("XDG_CACHE_HOME", str(llama_bench.model.file.path.parents[3]))

    def start_as(*letters: str, **fields: Unpack[ConfigFields]) -> Started:
        usual: ConfigFields = {
            "parallel": 1,
            "kv_unified": True,
            "cache_ram": CACHE_RAM,
            "slot_prompt_similarity": SIMILAR,
            **fields,
        }
        config = llama_bench.config(dict.fromkeys(letters, 0.0), **usual)
        words = flags_of(config, llama_bench.program.capabilities)
        return by_hand(str(llama_bench.program.binary), *words, "--port", "0")

    return start_as


def url(started: Started) -> str:
    return f"--llama-url={started.url}"


def test_one_scenario_is_tested_and_the_next_is_not(start_as: StartAs, tmp_path: Path) -> None:
    """On a server that has answered nothing yet; it lives on."""
    started, ledger = start_as("A"), tmp_path / "ledger.jsonl"
    done = suite("-v", "-k", CONTROL, LLAMA, url(started), f"--llama-report={ledger}")
    assert done.returncode == 0, done.stdout
    assert re.search(r"test_one_setting_everywhere +0/401 \S+ \S+ +holds ", done.stdout)
    again = "the attached server has answered before: start it again (select one scenario with -k)"
    assert f"not tested: 1 configuration: {again}" in done.stdout
    assert ": 1 holds; 1 not tested\n" in done.stdout
    assert started.identity.lives()
    run, *_ = rows(ledger)
    assert run["attached"]["url"] == started.url
    assert run["attached"]["pid"] == started.pid
    assert "--lora-scaled" in run["attached"]["argv"]
    assert run["builds"][0]["said_by"] == "--llama-url"
    assert suite("-k", CONTROL, LLAMA, url(started)).returncode == 5
    assert started.identity.lives()


def test_without_a_selection_it_is_said_what_can_be_tested(start_as: StartAs) -> None:
    """Nothing is sent to the server, so that it can still be tested."""
    started = start_as("A")
    done = suite(LLAMA, url(started))
    assert done.returncode == 5
    assert re.search(r"^\d+ fit this server, and nothing was sent to it: select", done.stdout, re.M)
    assert "test_one_setting_everywhere[llama-np1-kvu-" in done.stdout
    assert "test_other_adapter_comes_back" not in done.stdout  # it needs two adapters
    assert Client(started.url).slots()[0].used is False
    one = suite("-k", f"{CONTROL}-completion", LLAMA, url(started))
    assert one.returncode == 0, one.stdout


def test_what_fails_fails(pytester: pytest.Pytester, start_as: StartAs) -> None:
    write_scenario(pytester, fails=True)
    started = start_as("A", cache_ram=1)
    result = pytester.runpytest_subprocess(url(started))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "P again: lost_reuse: * tokens were read again for nothing",
            "*why: the log is not read: that of a server that was attached to",
            "server: */llama-server *--parallel 1 *--cache-ram 1 *",
            "start that server again first",
            f"run again: pytest *test_made_here* --llama-url={started.url}",
        ]
    )
    result.stdout.no_fnmatch_line("logs: *")
    result.stdout.no_fnmatch_line("*what the server logged*")
    assert started.identity.lives()


def test_a_server_that_was_started_otherwise(start_as: StartAs, by_hand: ByHand) -> None:
    """What is told starts one on which the scenario can be tested."""
    started = start_as("A", parallel=2)
    done = suite("-k", f"{CONTROL}-completion", LLAMA, url(started))
    assert done.returncode == 5
    needs = "needs --parallel 1, the server was started with --parallel 2"
    assert f"not tested: 1 configuration: {needs}\n" in done.stdout
    (line,) = re.findall(r"^for \S+everywhere\S+ start it as: (.*)$", done.stdout, re.MULTILINE)
    assert Client(started.url).slots()[0].used is False
    right = by_hand(*shlex.split(line), "--port", "0")
    done = suite("-k", f"{CONTROL}-completion", LLAMA, url(right))
    assert (done.returncode, "1 holds" in done.stdout) == (0, True), done.stdout


def test_what_a_server_was_not_told_does_not_count(by_hand: ByHand, llama_bench: Bench) -> None:
    """Though it may do so by itself: what it does without being told differs from build to build.

    Its other words are kept where it is to be started again.
    """
    model = llama_bench.model.file.path
    binary = str(llama_bench.program.binary)
    own = ("-c", "16384", "-t", "2", "--lora-scaled", f"{llama_bench.model.adapters['A'].path}:1")
    started = by_hand(binary, "-m", str(model), *own, "--port", "0")
    done = suite("-k", f"{CONTROL}-completion", LLAMA, url(started))
    flags = "--cache-ram 256 --parallel 1 --kv-unified --slot-prompt-similarity 0.1"
    without = f"needs {flags}, the server was started without"
    adapters = "needs adapters A.gguf:0, the server was started with adapters A.gguf:1"
    for reason in (without, adapters):
        assert f"not tested: 1 configuration: {reason}\n" in done.stdout
    (line,) = re.findall(r"start it as: (.*)$", done.stdout, re.MULTILINE)
    assert line.endswith(" -t 2")
    assert "--threads 1 " not in line
    assert "A.gguf:0.0 " in line
    many = suite("-k", "everywhere and np", LLAMA, url(started))
    assert many.returncode == 5
    assert "start it as: " not in many.stdout
    assert "to see how to start a server for one of these, select it alone (-k)" in many.stdout


def test_slot_files_are_not_tested(start_as: StartAs) -> None:
    started = start_as()
    options = ("-k", "np1-kvu-completion", LLAMA, url(started))
    done = suite("tests/cache/test_slot_files.py", *options)
    assert done.returncode == 5
    words = "slot files are not tested on a server that was attached to"
    assert re.search(rf"^not tested: \d+ configurations: {words}$", done.stdout, re.MULTILINE)
    assert "start it as" not in done.stdout


def test_a_scenario_does_not_start_it_again(pytester: pytest.Pytester, start_as: StartAs) -> None:
    write_scenario(pytester)
    path = pytester.path / "test_lora.py"
    path.write_text(path.read_text() + "\n        s.restart()\n")
    started = start_as("A", cache_ram=64)
    result = pytester.runpytest_subprocess(url(started))
    assert result.ret == 5
    words = "a server that was attached to is not started again by a scenario"
    result.stdout.fnmatch_lines([f"not tested: 1 configuration: {words}"])
    assert started.identity.lives()


def test_a_server_that_dies_meanwhile(pytester: pytest.Pytester, start_as: StartAs) -> None:
    write_scenario(pytester)
    path = pytester.path / "test_lora.py"
    path.write_text(
        path.read_text().replace(
            '        s.ask("Q", Q)\n',
            "        import os, signal\n"
            "        os.kill(s.server.pid, signal.SIGKILL)\n"
            '        s.ask("Q", Q)\n',
        )
    )
    started = start_as("A", cache_ram=64)
    result = pytester.runpytest_subprocess(url(started))
    result.assert_outcomes(failed=1)
    ended = f"llama-server (process {started.pid}, which was attached to) has ended"
    lines = [
        f"*: crash: {ended}",
        f"*why: the server ended: {ended}",
        "*: 1 failed like nothing known",
    ]
    result.stdout.fnmatch_lines(lines)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--llama-url=http://192.0.2.1:80"], "192.0.2.1 is no loopback address"),
        (["--llama-url=ftp://x"], "that is no http://HOST:PORT"),
        (["--llama-url=--"], "`--` is no value for an option"),
        (["--llama-url=http://[::1]:1", "--llama-url=http://[::1]:2"], "was given twice"),
        (["--llama-url=http://[::1]:1", "-n", "2"], "scenarios want it for themselves (leave out"),
        (["--llama-url=http://[::1]:1", "--llama-bin=x"], "--llama-bin and --llama-url cannot be"),
        (["--llama-url=http://[::1]:1", "--llama-arg=-np 1"], "--llama-arg and --llama-url cannot"),
        (["--llama-url=http://[::1]:1", "--llama-device=cpu"], "--llama-device and --llama-url"),
        (["--llama-url=http://[::1]:1", "--llama-launcher=rr"], "--llama-launcher and --llama-url"),
    ],
)
def test_what_cannot_be_attached_to(options: list[str], words: str) -> None:
    check_usage_error(words, *options)


def test_nobody_listens(dead: str) -> None:
    check_usage_error("nobody listens there (start a llama-server first)", f"--llama-url={dead}")


def test_somebody_else_listens(by_hand: ByHand, tmp_path: Path) -> None:
    """A web server; it is asked nothing, and only run where it might be what it should be."""
    program = tmp_path / "serve.py"
    program.write_text(
        "import http.server\n"
        "own = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
        "print(f'listening on http://127.0.0.1:{own.server_port}', flush=True)\n"
        "own.serve_forever()\n"
    )
    web = by_hand("python3", str(program))
    check_usage_error("listens there, which was started without --model", url(web))
    disguised = by_hand("python3", str(program), "--model", "x")
    check_usage_error("is not a llama-server", url(disguised))
    assert web.identity.lives()
    assert disguised.identity.lives()


def test_another_model_than_those_of_the_run(by_hand: ByHand, real_server: Path) -> None:
    other = generated("mamba2").file.path
    started = by_hand(str(real_server), "-m", str(other), "--port", "0")
    words = f"the server's model {other.resolve()} is none of this run's: llama (start it with what"
    check_usage_error(words, url(started), LLAMA)
    done = suite("--collect-only", "-q", "-k", "same_slot", url(started))
    assert done.returncode == 0, done.stdout
    assert "[mamba2-" in done.stdout
    assert "[llama-" not in done.stdout


def check_usage_error(words: str, *options: str) -> None:
    done = suite(*options)
    assert done.returncode == 4
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert words in line
    assert "Traceback" not in done.stdout + done.stderr
