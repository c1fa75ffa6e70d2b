"""The suite: where it is, and a run of it that leaves nothing but what it found."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from harness import progress
from harness.errors import EXIT_NOT_OBTAINED, DoesNotRun, NoVerdict, UsageProblem
from harness.ledger import Run, read
from harness.server.device import AUTO
from harness.server.guard import Guard
from harness.session import DEFAULT_SECONDS, GENERATED, Session, prepare

_HERE = Path(__file__).parent
_PLUGINS = ("harness.plugin", "harness.progress", "pytest_timeout")
_WORKERS = "xdist.plugin"
_ENDED = (0, 1, 5)
"""Exit codes of a run that came to its end."""
_USAGE = 4
_TELLING = re.compile(r"^(?:!+ )?(?:ERROR|(?:[\w.]*\.)?Exit): (.*?)(?: !+)?$")
"""A line with which pytest says why it ended."""
_INTERNAL = "INTERNALERROR>"
"""What pytest prints where it fails itself, which has the same exit code."""
_SECONDS_TO_END = 20.0
"""For pytest to end its servers, once it is told to."""


def root() -> Path:
    """The directory with the suite's `pyproject.toml` and `tests/cache`.

    In a wheel a directory of its own (see `hatch_build.py`), else the clone.
    """
    packed = _HERE / "_suite"
    return packed if packed.is_dir() else _HERE.parent


def scenarios() -> Path:
    """The suite, as an argument for pytest. Raises `UsageProblem` where there is none."""
    path = root() / "tests" / "cache"
    if not (path / "conftest.py").is_file():
        raise UsageProblem(f"{path} is not the suite", hint="install llama-cache-harness again")
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What a run tests: a build, with a model and arguments. Paths are absolute."""

    binary: Path
    model: str = GENERATED
    memory: str | None = None
    loras: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    """As words of a command line."""
    device: str = AUTO
    seconds: float = DEFAULT_SECONDS

    def prepare(self) -> Session:
        """Finds out that all of it can be used, before anything runs.

        Raises `UsageProblem` where it cannot, `DoesNotRun` for a build this CPU cannot run.
        """
        return prepare(
            binaries=[str(self.binary)],
            environ=dict(os.environ),
            model=self.model,
            memory=self.memory,
            loras=self.loras,
            args=[shlex.join(self.args)],
            launcher=None,
            device=self.device,
            seconds=self.seconds,
        )

    def options(self) -> list[str]:
        """The same to pytest."""
        words = [f"--llama-bin={self.binary}", f"--llama-model={self.model}"]
        words += [f"--llama-device={self.device}", f"--llama-timeout={self.seconds:g}"]
        words += [] if self.memory is None else [f"--llama-memory={self.memory}"]
        words += [f"--llama-lora={lora}" for lora in self.loras]
        return [*words, f"--llama-arg={shlex.join(self.args)}"] if self.args else words


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which scenarios run, and in how many processes."""

    keyword: str | None = None
    marks: str | None = None
    processes: str | None = None

    def check(self) -> None:
        """Raises `UsageProblem` for what pytest would not understand without pytest-xdist."""
        if self.processes is not None and importlib.util.find_spec("xdist") is None:
            raise UsageProblem("-n needs pytest-xdist", hint="pip install pytest-xdist")

    def options(self) -> list[str]:
        """To pytest, each as one word: a value may begin with `-`."""
        given = {"-k": self.keyword, "-m": self.marks, "-n": self.processes}
        return [f"{flag}{value}" for flag, value in given.items() if value]


def run_suite(server: Server, selection: Selection, report: Path | None = None) -> Run:
    """Run the suite on a server with its progress on stderr; no known bug is expected to show.

    The ledger is kept at `report`, where that is given. Neither the current directory nor pytest's
    own variables have a say. Raises `UsageProblem` for what pytest does not understand,
    `DoesNotRun` for a build with instructions that this CPU does not have, `NoVerdict` where the
    run broke off.
    """
    suite = scenarios()
    selection.check()
    with tempfile.TemporaryDirectory(prefix="llama-harness.") as directory:
        ledger = report or Path(directory, "ledger.jsonl")
        command = [
            *(sys.executable, "-m", "pytest", f"-c{root() / 'pyproject.toml'}"),
            *(f"--rootdir={root()}", str(suite), "-p", "no:cacheprovider"),
            *("-q", "--no-summary", f"--basetemp={Path(directory, 'scenarios')}"),
            *(f"--llama-report={ledger}", "--known-bugs=fail"),
            *(*server.options(), *selection.options()),
        ]
        words = _finished(command, Path(directory), workers=selection.processes)
        return _found(ledger, *words)


def _finished(
    command: Sequence[str], directory: Path, *, workers: str | None
) -> tuple[int, str, str]:
    """Run pytest and return its exit code, its words on stderr and its words on stdout.

    pytest is in a process group of its own, which ends with us, however we end.
    """
    sys.stderr.flush()
    out, err = directory / "stdout", directory / "stderr"
    terminal = sys.stderr.fileno()
    environ = _environment(os.environ, workers=workers is not None)
    with _terminable(), Guard() as guard, out.open("wb") as words, err.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=root(),
            env={**environ, progress.VARIABLE: str(terminal)},
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=errors,
            pass_fds=[terminal],
            process_group=0,
        )
        try:
            guard.add(process.pid)
            process.wait()
        finally:
            _end(process)
            guard.discard(process.pid)
    said, printed = (path.read_text(encoding="utf-8", errors="replace") for path in (err, out))
    return process.returncode, said, printed


@contextmanager
def _terminable() -> Iterator[None]:
    """What asks us to end does so as Ctrl-C does, with the exit code of a shell's."""

    def leave(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    # Under nohup one of them is ignored, and stays so.
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of its group is left: it may end in order first, unless we are told again."""
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(environ: Mapping[str, str], *, workers: bool) -> dict[str, str]:
    """For pytest: no plugin but those of the suite, and nothing is written beside its files."""
    kept = {name: value for name, value in environ.items() if not name.startswith("PYTEST_")}
    if paths := kept.get("PYTHONPATH"):
        kept["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, paths.split(os.pathsep)))
    return {
        **kept,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": ",".join([*_PLUGINS, *([_WORKERS] if workers else [])]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _found(ledger: Path, code: int, said: str, printed: str = "") -> Run:
    """Return what a run wrote, if it came to its end; `said` and `printed` are pytest's words."""
    words = _telling(said)
    if code == _USAGE:
        raise UsageProblem(words or "pytest did not understand its options")
    if code == EXIT_NOT_OBTAINED and _INTERNAL not in said + printed:
        lines = f"{printed}\n{said}".splitlines()
        if reasons := [match[1] for match in map(_reason, lines) if match]:
            raise DoesNotRun(reasons[-1])
    try:
        if code in _ENDED:
            run = read(ledger)
            sys.stderr.write(said)
            if run.lost:
                raise NoVerdict(f"{len(run.lost)} tests came to no verdict, as {run.lost[0]}")
            return run
    except UsageProblem:  # a file of ours is nothing that was asked for
        pass
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    words = words or _telling(printed)
    raise NoVerdict(f"the suite broke off: pytest {how}" + (f": {words}" if words else ""))


def _telling(said: str) -> str:
    """Return the line that says what was wrong, or the last one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    reasons = [match[1] for line in lines if (match := _reason(line))]
    return (reasons or lines or [""])[-1]


def _reason(line: str) -> re.Match[str] | None:
    return _TELLING.match(line.strip())
