"""Nothing survives the harness, however it ends.

Each test runs a pytest of its own, in a session of its own, on a small file whose test starts
servers through the plugin's `llama_scenario`, and then does what the case is about or just waits
for it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.server.process import Program
from tests.harness.server.conftest import WriteProgram
from tests.harness.server.processes import Identity, descendants, until, wait_until_gone

STARTING = 60.0
"""Seconds until a pytest with a server is where a test wants it."""

TEST = """
import json, os, signal, threading, time
from pathlib import Path

import psutil, pytest

from harness.prompts import Route, prose
from harness.loaded import NO_FIELD

HERE = Path(__file__).parent


def identity(pid):
    return [pid, psutil.Process(pid).create_time()]


@pytest.mark.parametrize("number", range(NUMBER))
def test_scenario(number, llama_scenario, llama_guard):
    with llama_scenario(Route.COMPLETION, adapters={}, parallel=1) as s:
        s.ask("P", prose("P", 50), lora=NO_FIELD)  # starts the server for cold runs, too
        here = psutil.Process()
        others = [p.pid for p in here.children(recursive=True) if p.pid != llama_guard.pid]
        assert s.server.pid in others
        note = {
            "python": identity(here.pid),
            "guard": identity(llama_guard.pid),
            "servers": [identity(pid) for pid in others],
        }
        unfinished = HERE / f"{number}.unfinished"
        unfinished.write_text(json.dumps(note))
        unfinished.rename(HERE / f"{number}.json")
        ENDING
"""

WAIT = "threading.Event().wait()"

WAIT_FOR_RELEASE = """
        while not (HERE / "release").exists():
            time.sleep(0.01)
"""


@dataclass(frozen=True, slots=True)
class Note:
    """What a test wrote down: who runs it, and what it started."""

    python: Identity
    guard: Identity
    servers: tuple[Identity, ...]

    @classmethod
    def read(cls, path: Path) -> Note:
        data: dict[str, Any] = json.loads(path.read_text())
        servers = tuple(Identity(*server) for server in data["servers"])
        return cls(Identity(*data["python"]), Identity(*data["guard"]), servers)


@dataclass(slots=True)
class Run:
    """A pytest of its own."""

    directory: Path
    process: subprocess.Popen[bytes]
    tests: int
    seen: list[Identity] = field(default_factory=list)

    def notes(self) -> list[Note]:
        """What its tests wrote down, once all have."""
        paths = [self.directory / f"{number}.json" for number in range(self.tests)]
        self.wait_for(lambda: all(path.exists() for path in paths), "its tests have begun")
        notes = [Note.read(path) for path in paths]
        for note in notes:
            assert len(note.servers) >= 2, "the scenario's, and the one for cold runs"
            self.seen += [note.guard, *note.servers]
        return notes

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        def ended_or_holds() -> bool:
            return condition() or self.process.poll() is not None

        until(ended_or_holds, f"{what}\n{self.output()}", STARTING)
        assert condition(), f"ended before {what}:\n{self.output()}"

    def output(self) -> str:
        return (self.directory / "output").read_text(errors="replace")

    def exit_code(self) -> int:
        return self.process.wait(STARTING)

    def signal_all(self, number: signal.Signals) -> None:
        """As a terminal does: to the whole foreground process group."""
        os.killpg(self.process.pid, number)

    def nothing_is_left(self) -> None:
        """The servers and the guards of all its tests are gone."""
        wait_until_gone(self.seen)

    def clean_up(self) -> None:
        """Whatever a failing test may have left, workers of a killed controller included."""
        with suppress(ProcessLookupError):  # the whole group has ended
            self.signal_all(signal.SIGKILL)
        self.process.wait()
        for process in self.seen:
            process.kill()


StartRun = Callable[..., Run]
"""`start_run(ending, *options, tests=1)`: each test ends with the statement `ending`."""


@pytest.fixture
def start_run(program: Program, tmp_path: Path) -> Iterator[StartRun]:
    runs: list[Run] = []

    def start(ending: str, *options: str, tests: int = 1) -> Run:
        source = TEST.replace("ENDING", ending).replace("NUMBER", str(tests))
        (tmp_path / "test_inner.py").write_text(source)
        # A directory of its own: nothing of this project's configuration applies.
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin()]
        command += [f"--llama-bin={program.binary}", *options, "test_inner.py"]
        with (tmp_path / "output").open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(),
                start_new_session=True,
                preexec_fn=default_signals,
            )
        runs.append(Run(tmp_path, process, tests))
        return runs[-1]

    yield start
    for run in runs:
        run.clean_up()


def plugin() -> tuple[str, ...]:
    """The words that load the plugin, where it is not installed."""
    found = importlib.metadata.entry_points(group="pytest11", name="harness.plugin")
    return () if found else ("-p", "harness.plugin")


def environment() -> dict[str, str]:
    """Ours, without what pytest and pytest-xdist say to each other."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    root = str(Path(harness.__file__).parents[1])
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, [root, kept.get("PYTHONPATH")]))}


def default_signals() -> None:
    """Below nohup, or in the background of a script, they would be ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


# --- one pytest -----------------------------------------------------------------------------------


def test_the_end_of_the_session(start_run: StartRun) -> None:
    run = start_run("pass")
    run.notes()
    assert run.exit_code() == 0, run.output()
    run.nothing_is_left()


def test_an_exception_in_a_test(start_run: StartRun) -> None:
    run = start_run("raise RuntimeError('on purpose')")
    run.notes()
    # It failed, and no other scenario reached a verdict.
    assert run.exit_code() == pytest.ExitCode.NO_TESTS_COLLECTED, run.output()
    run.nothing_is_left()


def test_ctrl_c(start_run: StartRun) -> None:
    run = start_run(WAIT)
    run.notes()
    run.signal_all(signal.SIGINT)
    assert run.exit_code() == pytest.ExitCode.INTERRUPTED, run.output()
    run.nothing_is_left()


def test_sigterm(start_run: StartRun) -> None:
    run = start_run(WAIT)
    run.notes()
    run.process.terminate()
    assert run.exit_code() == -signal.SIGTERM
    run.nothing_is_left()


def test_sighup(start_run: StartRun) -> None:
    """The terminal is closed."""
    run = start_run(WAIT)
    run.notes()
    run.signal_all(signal.SIGHUP)
    assert run.exit_code() == -signal.SIGHUP
    run.nothing_is_left()


def test_kill_9(start_run: StartRun) -> None:
    run = start_run(WAIT)
    run.notes()
    run.process.kill()
    run.nothing_is_left()


def test_kill_9_while_a_server_is_starting(
    start_run: StartRun, write_program: WriteProgram, tmp_path: Path
) -> None:
    slow = write_program(
        "import os, sys, time\n"
        f"open({str(tmp_path / 'starting')!r}, 'w').close()\n"
        "time.sleep(300)\n"
    )
    run = start_run(WAIT, f"--llama-launcher={shlex.quote(str(slow))}")
    run.wait_for((tmp_path / "starting").exists, "the launcher runs")
    run.seen += descendants(run.process.pid)  # the launcher, and the guard
    assert len(run.seen) >= 2
    run.process.kill()
    run.nothing_is_left()


ELSEWHERE = """
import os, sys
if os.fork():
    os.wait()
else:
    os.setsid()
    os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("end", ["in_order", "kill_9"])
def test_a_launcher_that_runs_its_server_in_another_session(
    end: str, start_run: StartRun, write_program: WriteProgram
) -> None:
    """No signal to the process group that the guard knows reaches the server."""
    launcher = f"--llama-launcher={shlex.quote(str(write_program(ELSEWHERE)))}"
    run = start_run("pass" if end == "in_order" else WAIT, launcher)
    (note,) = run.notes()
    assert len(note.servers) == 4, "two servers, a launcher each"
    if end == "kill_9":
        run.process.kill()
    else:
        assert run.exit_code() == 0, run.output()
    run.nothing_is_left()


# --- pytest-xdist ---------------------------------------------------------------------------------


@pytest.fixture
def xdist() -> None:
    pytest.importorskip("xdist")


@pytest.mark.usefixtures("xdist")
@pytest.mark.parametrize(
    "crash", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGSEGV)"], ids=["exit", "segfault"]
)
def test_a_worker_that_crashes(crash: str, start_run: StartRun) -> None:
    run = start_run(crash, "-n1")
    run.notes()
    run.nothing_is_left()
    assert run.exit_code() == 1, run.output()
    assert "crashed" in run.output()


@pytest.mark.usefixtures("xdist")
def test_kill_9_of_one_worker(start_run: StartRun) -> None:
    """Only its own servers end; those of the other worker live until its test has ended."""
    run = start_run(WAIT_FOR_RELEASE, "-n2", tests=2)
    killed, other = run.notes()
    assert killed.python != other.python
    killed.python.kill()
    wait_until_gone([*killed.servers, killed.guard])
    assert all(server.lives() for server in (*other.servers, other.guard))
    (run.directory / "release").touch()
    assert run.exit_code() == 1, run.output()
    assert "1 failed, 1 passed" in run.output()
    run.nothing_is_left()


@pytest.mark.usefixtures("xdist")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_the_end_of_the_controller_alone(number: signal.Signals, start_run: StartRun) -> None:
    """Workers may live on, but no server does."""
    run = start_run(WAIT, "-n2", tests=2)
    for note in run.notes():
        os.kill(note.python.pid, signal.SIGSTOP)  # it cannot do the work of the guard
    run.process.send_signal(number)
    run.nothing_is_left()


@pytest.mark.usefixtures("xdist")
def test_ctrl_c_with_workers(start_run: StartRun) -> None:
    run = start_run(WAIT, "-n2", tests=2)
    run.notes()
    run.signal_all(signal.SIGINT)
    run.nothing_is_left()
    assert run.exit_code() == pytest.ExitCode.INTERRUPTED, run.output()
