"""The plugin as people use it: subprocesses of pytest on the suite, and on files made here."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from harness.builds.build import Build
from harness.cause import Cause
from harness.models.synthetic.store import generated
from harness.prompts import FOX, GLASS

ROOT = Path(__file__).parents[2]
NP1 = "np1-kvu-completion"
LLAMA = "--llama-memory=llama"


def _build_id(build: Build) -> str:
    """What the build under test is called in its own run."""
    return f"b{build.number}" if build.number else str(build.capabilities.commit)


WORKERS = pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["plain", "n2"])

SCENARIO = """
import pytest
from harness.expect import Claim
from harness.prompts import Route, prose

P, Q = prose("P", {characters}), prose("Q", {characters})

@pytest.mark.parametrize("case", ["{case}"])
def {name}(llama_scenario, case):
    fields = {{"parallel": 1, "cache_ram": {cache_ram}}}
    with llama_scenario(Route.COMPLETION, adapters={{"A": 0.0}}, **fields) as s:
        s.ask("{step}", P)
        s.ask("Q", Q)
        s.ask("P again", P, reuse=Claim.PROMISED)
"""


def write_scenario(
    pytester: pytest.Pytester,
    *,
    name: str = "test_made_here",
    case: str = "np1-kvu",
    step: str = "P",
    fails: bool = False,
) -> None:
    # What does not fit into the prompt cache is lost, whatever a step promises.
    characters, cache_ram = (3000, 1) if fails else (150, 64)
    text = SCENARIO.format(
        name=name, case=case, step=step, characters=characters, cache_ram=cache_ram
    )
    pytester.makepyfile(test_lora=text)
    pytester.makeini("[pytest]\n")


_THEIRS = re.compile(r"HF_|HUGGING_?FACE_|(https?|all|no)_proxy$", re.IGNORECASE)


def suite(*options: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs pytest in the clone, as typed there; with no hub, cache or proxy of the tester's."""
    own = {name: text for name, text in os.environ.items() if not _THEIRS.match(name)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=ROOT,
        env={**own, **(environ or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@WORKERS
def test_known_bugs_are_expected_on_the_projects_own_server(
    llama_build: Build, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    if not llama_build.origin.provided:
        pytest.skip("known bugs are recorded for the wheel")
    ledger, junit = tmp_path / "ledger.jsonl", tmp_path / "junit.xml"
    done = suite(
        *("-v", "-k", f"article and {NP1}", LLAMA),
        *(f"--llama-report={ledger}", f"--junitxml={junit}", *workers),
    )
    assert done.returncode == 0, done.stdout
    assert "2 xfailed" in done.stdout
    # Three prompts, a token a character and a BOS. The glass is lost, the fox starts from its BOS.
    glass, fox = len(GLASS.text) + 1, len(FOX.text) + 1
    reuse = f"0/{glass} 1/{fox - 1} 0/{glass + len('And then')}"
    assert re.search(rf"test_article +{reuse} +known bug +#30275", done.stdout)
    assert f"{_build_id(llama_build)}: 2 fail as 1 known bug does, nothing new\n" in done.stdout
    run, *requests, verdict = rows(ledger)[:5]
    assert [run["row"], *(r["row"] for r in requests), verdict["row"]] == (
        ["run", "request", "request", "request", "verdict"]
    )
    assert run["builds"][0]["sha256"] == llama_build.sha256
    assert verdict["signature"] == ["glass + tail: lost_reuse"]
    assert "face thou viewest" not in ledger.read_text()
    names = {p.get("name"): p.get("value") for p in ET.parse(junit).iter("property")}
    assert names["verdict"] == "known bug"
    assert names["cache_n/prompt_n"] == reuse
    assert names["issue"] == "#30275"
    why = requests[2]["reason"]
    whys = [p.get("value") for p in ET.parse(junit).iter("property") if p.get("name") == "why"]
    assert f"glass + tail: {why['cause']}: {why['text']}" in whys
    assert re.search(rf"^{why['cause']} +2 +\d+ +test_article \(2\)", done.stdout, re.MULTILINE)


def test_no_step_is_left_unexplained(tmp_path: Path) -> None:
    """Of scenarios of each file, with each kind of memory: what failed, or read tokens again."""
    ledger = tmp_path / "ledger.jsonl"
    some = "llama-np4-nokvu-completion or np1-kvu-chat or removed_text"
    suite("-q", "-m", "not slow", "-k", some, f"--llama-report={ledger}")
    asked = [row for row in rows(ledger) if row["row"] == "request"]
    due = [row for row in asked if row["failures"] or row["read_again"]]
    assert {row["scenario"].partition("::")[0] for row in due} > {
        *("test_lora.py", "test_probes.py", "test_slot_files.py", "test_checkpoints.py")
    }
    assert not [row for row in due if row["reason"]["cause"] == Cause.UNKNOWN]
    assert all(row["chosen"] for row in asked if row["cache_n"] is not None)


def test_with_other_arguments_a_known_bug_need_not_show(llama_build: Build) -> None:
    """With a larger micro-batch a window's cache is large enough for all of the prompt."""
    if not llama_build.origin.provided:
        pytest.skip("known bugs are recorded for the wheel")
    name = "test_edited_message[gemma3-np1-kvu-chat-all_kept-second]"
    edited = f"tests/cache/test_checkpoints.py::{name}"
    assert "1 xfailed" in suite(edited).stdout
    done = suite(edited, "--llama-arg=-ub 512", "-v")
    assert done.returncode == 0, done.stdout
    assert "holds" in done.stdout
    assert "the known bug unreported: window lost does not show with these" in done.stdout


def test_what_fails_fails_on_a_server_a_person_passed(llama_build: Build, tmp_path: Path) -> None:
    binary, keep = f"--llama-bin={llama_build.origin.path}", tmp_path / "keep"
    done = suite("-k", f"article and {NP1}-wide0", LLAMA, binary, f"--llama-keep={keep}")
    assert done.returncode == 1
    glass = len(GLASS.text) + 1
    tail = glass + len("And then")
    step = rf"3 glass \+ tail +{tail} tokens +A 0.5 +A at 0.5 +{glass} +{glass} +0/{tail} +lost"
    assert re.search(step, done.stdout)
    assert f"glass + tail: lost_reuse: {glass} tokens were read again for nothing" in done.stdout
    assert "| " in done.stdout  # the log slice
    assert "lora change" in done.stdout
    (kept,) = keep.iterdir()
    assert f"logs: {kept}" in done.stdout
    assert "stop processing" in (kept / "server.log").read_text()
    (again,) = re.findall(r"^run again: pytest (.*)$", done.stdout, re.MULTILINE)
    assert suite(*shlex.split(again)).returncode == 1
    assert "1 failed" in suite(*shlex.split(again)).stdout
    expected = suite(*shlex.split(again), "--known-bugs=xfail")
    assert (expected.returncode, "1 xfailed" in expected.stdout) == (0, True)


def test_a_known_bug_that_is_gone_is_red(pytester: pytest.Pytester, llama_build: Build) -> None:
    """A scenario with a known bug's name that holds: red, unless known bugs are not accepted."""
    write_scenario(pytester, name="test_article", case="np1-kvu-chat-wide0")
    binary = f"--llama-bin={llama_build.origin.path}"
    if not llama_build.origin.provided:
        pytest.skip("known bugs are recorded for the wheel")
    gone = pytester.runpytest_subprocess("--known-bugs=xfail", binary)
    gone.assert_outcomes(failed=1)
    gone.stdout.fnmatch_lines(["*XPASS(strict): known bug #30275 does not show*fixed upstream?*"])
    gone.stdout.fnmatch_lines(["FIXED? #30275 does not show in 1: restored, then cleared*"])
    pytester.runpytest_subprocess("--known-bugs=fail", binary).assert_outcomes(passed=1)
    pytester.runpytest_subprocess(binary).assert_outcomes(passed=1)  # auto


def test_another_signature_than_the_known_one_is_red(
    pytester: pytest.Pytester, llama_build: Build
) -> None:
    if not llama_build.origin.provided:
        pytest.skip("known bugs are recorded for the wheel")
    write_scenario(pytester, name="test_article", case="np1-kvu-chat-wide0", fails=True)
    result = pytester.runpytest_subprocess(
        "--known-bugs=xfail", f"--llama-bin={llama_build.origin.path}"
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "P again: lost_reuse (test_article*",
            "the known bug #30275 shows as glass + tail: lost_reuse",
        ]
    )


BAD_BINARIES = {
    "missing": (None, "does not exist"),
    "not_a_server": ("#!/bin/sh\necho hello\n", "is not a llama-server"),
    "loader": (
        "#!/bin/sh\n"
        "echo 'x: error while loading shared libraries: libgomp.so.1: cannot open' >&2\n"
        "exit 127\n",
        "libgomp1",
    ),
    "wrong_architecture": ("\x7fELF\x02\x01\x01" + "\0" * 57, "cannot be run"),
}


# The controller decides before any worker starts: one case shows that it does.
@pytest.mark.parametrize(
    ("bad", "workers"), [*((bad, ()) for bad in BAD_BINARIES), ("missing", ("-n", "2"))]
)
def test_a_bad_binary_is_a_usage_error(tmp_path: Path, bad: str, workers: tuple[str, ...]) -> None:
    text, words = BAD_BINARIES[bad]
    path = tmp_path / "llama-server"
    if text is not None:
        executable(path, text)
    done = suite(f"--llama-bin={path}", *workers)
    assert done.returncode == 4
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert line.startswith("ERROR: ")
    assert words in line


@pytest.mark.parametrize("workers", [()], ids=["plain"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--llama-model=nowhere.gguf"], "--llama-model=nowhere.gguf: no such file"),
        (["--llama-lora=x.gguf"], "--llama-lora needs --llama-model"),
        (["--llama-arg=--port 80"], "--llama-arg may not give --port"),
        (["--llama-arg=--no-such"], "no flag --no-such"),
        (["--llama-arg=-np four -ctk q9"], "--llama-arg: -np four is not a number; -ctk q9 is not"),
        (["--llama-arg=-c 4096"], "--llama-arg: -c 4096 is too small: scenarios need 8192 tokens"),
        (["--llama-launcher=no-such-program"], "no such program"),
        (["--llama-report=/nowhere/x.jsonl"], "--llama-report=/nowhere/x.jsonl cannot be written"),
        (["--llama-report=/dev/full"], "No space left on device"),
        (["--llama-timeout=0"], "--llama-timeout=0: it must be above 0"),
        (["--llama-timeout=nan"], "--llama-timeout=nan: it must be above 0"),
        (["--llama-timeout=inf"], "--llama-timeout=inf: it must be above 0"),
        (["--llama-arg=--"], "`--` is no value"),
        (["--llama-keep=/dev/null/x"], "--llama-keep=/dev/null/x cannot be written"),
    ],
)
def test_bad_options_are_usage_errors(
    options: list[str], words: str, workers: tuple[str, ...]
) -> None:
    done = suite(*options, *workers)
    assert done.returncode == 4
    assert "Traceback" not in done.stdout + done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert words in line


# In one process: `test_a_user_without_adapters_gets_the_rest_listed`.
@pytest.mark.parametrize("workers", [("-n", "2")], ids=["n2"])
def test_contradicting_arguments_are_listed_as_not_tested(workers: tuple[str, ...]) -> None:
    done = suite("-k", NP1, "-m", "not slow", "--llama-arg=--parallel 2", *workers)
    assert done.returncode == 5
    assert re.search(
        r"^not tested: \d+ configurations?: "
        r"needs --parallel 1, --llama-arg gives --parallel 2$",
        done.stdout,
        re.MULTILINE,
    )


def test_a_flag_the_build_lacks_is_unsupported(llama_build: Build, tmp_path: Path) -> None:
    """Found by probing: this one's help does not know of --kv-unified."""
    old = executable(
        tmp_path / "llama-server",
        f"#!/bin/sh\ncase $1 in\n"
        f"--help) {llama_build.origin.path} --help | grep -v -e --kv-unified;;\n"
        f'*) exec {llama_build.origin.path} "$@";;\nesac\n',
    )
    done = suite("-k", f"article and {NP1}", LLAMA, f"--llama-bin={old}")
    assert done.returncode == 5
    assert "unsupported: 2 configurations: the build has no --kv-unified" in done.stdout


@pytest.fixture
def without_server(tmp_path: Path) -> dict[str, str]:
    """An environment in which no llama-server is found: no PATH, and the wheel is hidden."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda n, p=None: None if n.startswith('skulk') else find(n, p)\n"
    )
    return {"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}


@WORKERS
def test_no_server_at_all(without_server: dict[str, str], workers: tuple[str, ...]) -> None:
    done = suite(*workers, environ=without_server)
    assert done.returncode == 4
    first, second = [line for line in done.stderr.splitlines() if line.strip()]
    assert first == "ERROR: no llama-server was found"
    assert "--llama-bin=PATH" in second
    assert "Traceback" not in done.stdout + done.stderr


def test_without_a_server_the_rest_still_works(without_server: dict[str, str]) -> None:
    done = suite("tests/harness/test_expect.py", environ=without_server)
    assert done.returncode == 0, done.stdout
    assert suite("--collect-only", environ=without_server).returncode == 0


def test_a_project_that_only_has_the_plugin_installed(pytester: pytest.Pytester) -> None:
    """Nothing of ours happens there, though a server could be found: its own order and fixtures."""
    pytester.makeini("[pytest]\nmarkers = slow: theirs\n")
    pytester.makepyfile(
        """
        import pytest
        order = []

        @pytest.fixture
        def scenario():
            return "theirs"

        def test_first(scenario, request):
            assert scenario == "theirs"
            assert request.node.get_closest_marker("timeout") is None
            order.append(1)

        @pytest.mark.slow
        def test_second():
            assert order == [1]
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("*llama-server*")


def test_somewhere_else_than_in_the_suite(pytester: pytest.Pytester, llama_build: Build) -> None:
    """The head of the run looks healthy: without a word nobody knows why nothing is tested."""
    binary = f"--llama-bin={llama_build.origin.path}"
    result = pytester.runpytest_subprocess(binary)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(
        ["there are no scenarios here: run pytest $(llama-harness suite) with *"]
    )
    write_scenario(pytester)
    pytester.runpytest_subprocess(binary, "-k", "x").stdout.no_fnmatch_line("*no scenarios here*")
    broken = pytester.makepyfile(test_broken="import nothing_of_the_kind")
    pytester.runpytest_subprocess(binary, broken).stdout.no_fnmatch_line("*no scenarios here*")
    assert "no scenarios here" not in suite("tests/cache/test_lora.py::test_none_such").stdout


def test_a_project_that_does_not_say_so_gets_told(pytester: pytest.Pytester) -> None:
    write_scenario(pytester)
    result = pytester.runpytest_subprocess()
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: a test needs a llama-server*llama_harness = true*"])
    pytester.makeini("[pytest]\nllama_harness = true\n")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("environ", "workers"),
    [
        pytest.param({"LLAMA_SERVER_BIN_PATH": "/nowhere"}, (), id="binary-plain"),
        pytest.param({"LLAMA_SERVER_BIN_PATH": "/nowhere"}, ("-n", "2"), id="binary-n2"),
        pytest.param({"XDG_CACHE_HOME": "/proc/nowhere"}, (), id="cache-plain"),
    ],
)
def test_trouble_that_no_option_named(environ: dict[str, str], workers: tuple[str, ...]) -> None:
    done = suite("-k", f"{NP1} and article", *workers, environ=environ)
    assert done.returncode == 4
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert "/nowhere" in line


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("pass", 5, "this test judged nothing"),
        ("raise ZeroDivisionError('theirs')", 5, "ZeroDivisionError: theirs"),
        ("llama_scenario(Route.COMPLETION, adapters={}).__enter__().server.stop()", 5, "judged"),
    ],
)
def test_a_test_that_judges_nothing_is_no_verdict(
    pytester: pytest.Pytester, llama_build: Build, body: str, code: int, words: str
) -> None:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(
        f"from harness.prompts import Route\ndef test_it(llama_scenario):\n    {body}\n"
    )
    result = pytester.runpytest_subprocess(f"--llama-bin={llama_build.origin.path}")
    assert result.ret == code
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{words}*"])
    result.stdout.fnmatch_lines(
        ["run again: pytest test_*::test_it *", "*: nothing was found out; 1 gave no verdict"]
    )


def test_an_error_after_a_finding_is_more_than_nothing(
    pytester: pytest.Pytester, llama_build: Build
) -> None:
    write_scenario(pytester, fails=True)
    path = pytester.path / "test_lora.py"
    path.write_text(path.read_text() + "\n        raise RuntimeError('afterwards')\n")
    result = pytester.runpytest_subprocess(f"--llama-bin={llama_build.origin.path}", "-v")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*test_made_here* error *P again: lost_reuse; RuntimeError: *"])


def test_a_swallowed_failure_is_still_one(pytester: pytest.Pytester, llama_build: Build) -> None:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(
        """
        import contextlib
        from harness.expect import Claim
        from harness.prompts import Route, prose
        from harness.stage import ScenarioFailed

        def test_it(llama_scenario):
            with contextlib.suppress(ScenarioFailed):
                with llama_scenario(Route.COMPLETION, adapters={}, parallel=1, cache_ram=1) as s:
                    for name in ("P", "Q"):
                        s.ask(name, prose(name, 3000))
                    s.ask("P again", prose("P", 3000), reuse=Claim.PROMISED)
        """
    )
    result = pytester.runpytest_subprocess(f"--llama-bin={llama_build.origin.path}")
    assert result.ret == 1
    result.assert_outcomes(failed=1)


@WORKERS
def test_two_builds_side_by_side(
    llama_build: Build, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    wrapped = executable(tmp_path / "other", f'#!/bin/sh\nexec {llama_build.origin.path} "$@"\n')
    binaries = [f"--llama-bin={path}" for path in (llama_build.origin.path, wrapped)]
    done = suite("-v", "-k", f"same_slot and {NP1}", LLAMA, *binaries, *workers)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(": 1 holds\n") == 2
    assert done.stdout.count("test_lora.py::test_other_adapter_in_the_same_slot  ") == 2


@pytest.mark.parametrize(("unified", "count"), [("on", 2), ("off", 2), ("both", 4)])
def test_unified_kv_can_be_chosen(unified: str, count: int) -> None:
    choice = f"--llama-kv-unified={unified}"
    done = suite("--collect-only", "-q", "-k", "same_slot and completion", LLAMA, choice)
    ids = [line for line in done.stdout.splitlines() if "::" in line]
    assert len(ids) == count
    assert all(("-kvu-" in line) == (unified == "on") for line in ids) or unified == "both"


def test_a_users_own_model_is_judged_like_the_generated_one(
    llama_build: Build, tmp_path: Path
) -> None:
    """The same files, as a person passes them: no oracle, cold runs only."""
    model = generated()
    options = [f"--llama-model={model.file.path}"]
    options += [f"--llama-lora={adapter.path}" for adapter in model.adapters.values()]
    options += [f"--llama-bin={llama_build.origin.path}", "-k", NP1, "-m", "not slow"]
    judged = suite(*options, f"--llama-report={tmp_path}/judged")
    by_cell = suite(*options[3:], LLAMA, f"--llama-report={tmp_path}/by_cell")
    assert "answers judged by: cold runs" in judged.stdout
    assert "answers judged by: cell and cold runs" in by_cell.stdout
    found = [
        {
            (row["scenario"], row["configuration"]): (row["verdict"], row["signature"])
            for row in rows(tmp_path / name)
            if row["row"] == "verdict"
        }
        for name in ("judged", "by_cell")
    ]
    assert found[0] == found[1]
    files = {scenario.partition("::")[0] for scenario, _ in found[0]}
    assert files == {path.name for path in (ROOT / "tests/cache").glob("test_*.py")}


def test_a_user_without_adapters_gets_the_rest_listed(llama_build: Build) -> None:
    model = generated()
    done = suite(f"--llama-model={model.file.path}", "-k", f"everywhere and {NP1}")
    assert done.returncode == 0
    assert "not tested: 2 configurations: needs adapter A: see --llama-lora" in done.stdout
    assert "1 holds" in done.stdout


def test_a_ledger_that_breaks_off_is_said_and_red(
    pytester: pytest.Pytester, llama_build: Build
) -> None:
    write_scenario(pytester)
    pytester.makeconftest(
        "import errno, harness.ledger\n"
        "def full(self, row): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "harness.ledger.Ledger.add = full\n"
    )
    binary = f"--llama-bin={llama_build.origin.path}"
    result = pytester.runpytest_subprocess(binary, "--llama-report=ledger.jsonl")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["ERROR: --llama-report: ledger.jsonl is incomplete: No space left*"]
    )


def test_a_pipe_that_nobody_reads(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = suite(f"--llama-report={tmp_path}/pipe")
    assert done.returncode == 4
    assert "cannot be written" in done.stderr


def test_without_pytest_timeout() -> None:
    done = suite("-k", f"same_slot and {NP1}", "-p", "no:timeout")
    assert done.returncode == 0, done.stdout


def test_the_slow_scenario_runs_again_by_its_line(
    pytester: pytest.Pytester, llama_build: Build
) -> None:
    """A test without parameters has no brackets in its id."""
    write_scenario(pytester, fails=True)
    path = pytester.path / "test_lora.py"
    path.write_text(re.sub(r"@pytest.mark.*\n", "", path.read_text()).replace(", case)", ")"))
    binary = f"--llama-bin={llama_build.origin.path}"
    failed = pytester.runpytest_subprocess(binary, "--llama-timeout=30")
    (again,) = [line for line in failed.outlines if line.startswith("run again: pytest ")]
    assert again.endswith("test_lora.py::test_made_here " + binary + " --llama-timeout=30")
    pytester.runpytest_subprocess(*shlex.split(again)[3:]).assert_outcomes(failed=1)


def test_a_path_as_a_word_of_its_own(tmp_path: Path, llama_build: Build) -> None:
    """pytest would take it for its root directory and lose the configuration of the suite."""
    done = suite("--llama-bin", str(llama_build.origin.path.resolve()), "-k", NP1, "--co")
    assert done.returncode == 4
    assert "ERROR: write --llama-bin=" in done.stderr


NINE_LAYERS = "--override-kv llama.block_count=int:9"
"""What only models of that architecture feel: the generated llama has two layers."""
NO_START = rf"llama does not start with {NINE_LAYERS}: .*missing tensor 'blk\.2\.\S+'"


@WORKERS
def test_a_server_that_does_not_start_is_said_once(workers: tuple[str, ...]) -> None:
    """One scenario has no verdict, the others with that model are not tested; other models are."""
    some = f"{NP1} and (article or same_slot or everywhere)"
    models = "--llama-memory=llama,mamba2"
    done = suite("-k", some, models, f"--llama-arg={NINE_LAYERS}", *workers)
    assert done.returncode == 1  # one model is not tested, though it was asked for
    assert re.search(r" 1 gave no verdict; \d+ holds?; \d+ not tested$", done.stdout, re.MULTILINE)
    line = rf"^NO VERDICT {NO_START} \(1, (\d+) not tested for it\)$"
    (count,) = re.findall(line, done.stdout, re.MULTILINE)
    assert int(count) > 3
    assert not re.search("^not tested: ", done.stdout, re.MULTILINE)
    command = rf"^  command: .*/llama-server .*{NINE_LAYERS}"
    assert len(re.findall(command, done.stdout, re.MULTILINE)) == 1
    assert len(re.findall(r"^logs: /", done.stdout, re.MULTILINE)) == 1
    assert "its last lines:" in done.stdout
    assert len(re.findall(r"^run again: pytest .*int:9", done.stdout, re.MULTILINE)) == 1


def test_no_server_that_starts_is_no_verdict() -> None:
    done = suite("-k", f"{NP1} and same_slot", LLAMA, f"--llama-arg={NINE_LAYERS}")
    assert done.returncode == 5
    assert ": nothing was found out; 1 gave no verdict\n" in done.stdout


def test_help_and_the_docs_list_the_same_options() -> None:
    done = suite("--help")
    assert done.returncode == 0
    told = set(re.findall(r"(--(?:llama-|known-)[a-z-]+)=", done.stdout))
    listed = set(
        re.findall(r"`(--(?:llama-|known-)[a-z-]+)=", (ROOT / "docs/options.md").read_text())
    )
    assert told == listed
    assert len(told) == 15
