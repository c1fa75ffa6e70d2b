"""The suite as it travels in the wheel, and a run of it from anywhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import psutil
import pytest
from hatchling.builders.wheel import WheelBuilder

from harness import suite
from harness.errors import DoesNotRun, NoVerdict, UsageProblem
from harness.ledger import Verdict, read
from harness.server.process import runs
from harness.suite import Selection, Server, _found, run_suite, scenarios
from tests.harness.fronts.trial import write_front

ROOT = Path(__file__).parents[2]
ONE = "test_identical_request and np1-kvu-completion"


def server(binary: Path) -> Server:
    return Server(binary=binary, memory="llama", device="cpu")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an installation of the wheel puts into site-packages."""
    directory = tmp_path_factory.mktemp("wheel")
    built = WheelBuilder(str(ROOT)).build(directory=str(directory), versions=["standard"])
    with zipfile.ZipFile(next(iter(built))) as wheel:
        wheel.extractall(directory / "site")
    return directory / "site"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that would get in the way of a run which looked at it."""
    hostile = tmp_path / "elsewhere"
    (hostile / "tests" / "cache").mkdir(parents=True)
    (hostile / "tests" / "__init__.py").touch()
    broken = "raise RuntimeError('not the suite')\n"
    for name in ("conftest.py", "pytest.py", "tests/cache/__init__.py", "tests/conftest.py"):
        (hostile / name).write_text(broken)
    (hostile / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    monkeypatch.chdir(hostile)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    monkeypatch.setenv("PYTEST_PLUGINS", "no_such_plugin")
    return hostile


def test_in_a_clone_it_is_the_clones_own() -> None:
    assert suite.root() == ROOT
    assert scenarios() == ROOT / "tests/cache"


def test_an_installation_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "_HERE", tmp_path / "harness")
    with pytest.raises(UsageProblem, match="is not the suite"):
        scenarios()


def test_every_file_of_it_is_in_the_wheel(site: Path) -> None:
    def files(root: Path) -> dict[str, bytes]:
        paths = [root / "pyproject.toml", root / "tests/__init__.py"]
        paths += (root / "tests/cache").rglob("*")
        kept = [path for path in paths if path.is_file() and "__pycache__" not in path.parts]
        return {str(path.relative_to(root)): path.read_bytes() for path in kept}

    assert files(site / "harness/_suite") == files(ROOT)
    assert not list(site.rglob("*.pyc"))


def test_it_runs_from_the_wheel(site: Path, elsewhere: Path, real_server: Path) -> None:
    """By its own path, by which pytest finds its configuration; with no clone around."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environ |= {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}

    def run(*words: str) -> str:
        command = [sys.executable, *words]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = run("-m", "harness", "suite").strip()
    assert Path(where) == site / "harness/_suite/tests/cache"
    cache = site / "harness/_suite/.pytest_cache"
    cache.touch()  # where nobody may write pytest finds no place for its cache either
    options = [f"--llama-bin={real_server}", "-k", ONE]
    out = run("-m", "pytest", where, *options, "--llama-memory=llama")
    assert "1 passed" in out
    assert f"rootdir: {site / 'harness/_suite'}" in out
    cache.unlink()
    (elsewhere / "run.py").write_text(
        "from pathlib import Path\n"
        "from harness.suite import Selection, Server, run_suite\n"
        f"server = Server(binary=Path({str(real_server)!r}), memory='llama')\n"
        f"print(*(row.verdict for row in run_suite(server, Selection(keyword={ONE!r})).verdicts))\n"
    )
    assert run("run.py") == "holds\n"
    assert not list(site.rglob("__pycache__"))


@pytest.mark.parametrize("processes", [None, "2"])
def test_a_run(
    elsewhere: Path, real_server: Path, processes: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where it is started from has no say, and its progress is no result."""
    run = run_suite(server(real_server), Selection(keyword=ONE, processes=processes))
    assert [row.verdict for row in run.verdicts] == [Verdict.HOLDS]
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("100 % of 1 configurations, 0 min ")
    assert err.count("\n") == 1


def test_known_bugs_are_failures(real_server: Path, tmp_path: Path) -> None:
    front = write_front(tmp_path, real=real_server, fault="claims_less")
    run = run_suite(server(front), Selection(keyword=ONE))
    assert [row.signature for row in run.verdicts] == [("P again: lost_reuse",)]


def test_marks_choose_too(real_server: Path) -> None:
    keyword = "np1-kvu-completion and test_metrics"
    assert run_suite(server(real_server), Selection(keyword=keyword, marks="slow")).verdicts == ()


def test_a_word_that_looks_like_an_option(real_server: Path) -> None:
    assert run_suite(server(real_server), Selection(keyword="-x")).verdicts == ()


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (Selection(keyword="and and"), "Wrong expression passed to '-k': and and"),
        (Selection(marks="not"), "Wrong expression passed to '-m': not"),
    ],
)
def test_a_selection_that_cannot_be_read(
    selection: Selection, words: str, real_server: Path
) -> None:
    with pytest.raises(UsageProblem) as problem:
        run_suite(server(real_server), selection)
    assert str(problem.value).startswith(words)
    assert "\n" not in str(problem.value)


def test_several_processes_without_pytest_xdist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageProblem, match="-n needs pytest-xdist"):
        Selection(processes="2").check()


def test_a_test_that_is_lost_is_no_verdict(real_server: Path, tmp_path: Path) -> None:
    """Its worker is killed, as for want of memory: pytest counts a failure, and goes on."""
    killer = tmp_path / "killer"
    killer.write_text(
        f'#!/bin/sh\ncase "$1" in --version|--help|--list-devices) exec {real_server} "$1";; esac\n'
        '[ "$PYTEST_XDIST_WORKER" ] && kill -9 $PPID\n'
        f'exec {real_server} "$@"\n'
    )
    killer.chmod(0o755)
    with pytest.raises(NoVerdict, match=r"1 tests came to no verdict, as .*crashed"):
        run_suite(server(killer), Selection(keyword=ONE, processes="1"))


def test_a_run_that_breaks_off(real_server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "_environment", lambda *_, **__: {"PYTHONHOME": "/nowhere"})
    with pytest.raises(NoVerdict, match="the suite broke off: pytest ended with exit code 1: "):
        run_suite(server(real_server), Selection(keyword=ONE))


@pytest.mark.parametrize(
    ("stdout", "stderr"),
    [
        ("!!!!! _pytest.outcomes.Exit: b1 has instructions this CPU lacks !!!!!\n1 passed\n", ""),
        ("", "Exit: b1 has instructions this CPU lacks\n"),
        ("", "a warning\nERROR: b1 has instructions this CPU lacks\n\n"),
    ],
)
def test_a_build_that_does_not_run_here(stdout: str, stderr: str, tmp_path: Path) -> None:
    with pytest.raises(DoesNotRun) as error:
        _found(tmp_path / "none", 3, stderr, stdout)
    assert str(error.value) == "b1 has instructions this CPU lacks"


def test_an_error_in_pytest_itself_is_no_verdict(tmp_path: Path) -> None:
    """Its exit code is 3, too."""
    with pytest.raises(NoVerdict, match="ended with exit code 3: INTERNALERROR> Exit: x"):
        _found(tmp_path / "none", 3, "", "INTERNALERROR> Exit: x\n")
    with pytest.raises(NoVerdict, match=r"ended with exit code 3$"):
        _found(tmp_path / "none", 3, "", "")


def test_the_ledger_can_be_kept(real_server: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    run = run_suite(server(real_server), Selection(keyword=ONE), kept)
    assert read(kept) == run


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
)
def test_nothing_is_left_of_an_interrupted_run(
    number: signal.Signals, code: int, real_server: Path, tmp_path: Path
) -> None:
    """Not by Ctrl-C, which is one line, nor by what leaves no time for anything."""
    script = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from harness.cli import exit_code\n"
        # Both are ignored in what a shell runs in the background, or under nohup.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "from harness.suite import Selection, Server, run_suite\n"
        "server = Server(binary=Path(sys.argv[1]), memory='llama', device='cpu')\n"
        "sys.exit(exit_code('program', lambda: bool(run_suite(server, Selection()))))\n"
    )
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", script, str(real_server)]
    with subprocess.Popen(command, env=environ, cwd=ROOT, stderr=subprocess.PIPE) as process:
        started = _descendants_with_a_server(process.pid, real_server)
        process.send_signal(number)
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
        assert process.wait() == code
    gone, alive = psutil.wait_procs(started, timeout=30)
    assert (bool(gone), alive) == (True, [])
    assert bool(list(tmp_path.iterdir())) == (number == signal.SIGKILL)


def _descendants_with_a_server(pid: int, binary: Path) -> list[psutil.Process]:
    """Wait until a server is among the processes below one, and return all of them."""
    root = psutil.Process(pid)
    while runs(root):
        found = root.children(recursive=True)
        for process in found:
            try:
                if str(binary) in process.cmdline() and "--port" in process.cmdline():
                    return found
            except psutil.NoSuchProcess:
                continue
    raise AssertionError("it ended before it started a server")
