"""What a llama-server binary is and can do, probed once by running it."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.errors import DoesNotRun, UsageProblem
from harness.server.environment import hermetic_environment
from harness.server.flag_values import FlagValues

PROBE_SECONDS = 60.0
ENDED_BY_SIGILL = {-signal.SIGILL, 128 + signal.SIGILL}
"""Exit codes of what met an instruction the CPU does not have; the second is a shell's."""

# Two shapes: "version: 9670 (02810c7aa)" and "version: 0.1.0-dev (build 1, commit 7e4c0a9)".
_VERSION = re.compile(
    r"version: (?:(?P<n1>\d+) \((?P<c1>\w+)\)|\S+ \(build (?P<n2>\d+), commit (?P<c2>\w+)\))"
)
FIRST_NUMBER = 6000
"""No earlier build has the host-RAM prompt cache: a smaller number is that of a shallow clone."""
_HELP_FLAGS = re.compile(r"^-{1,2}[A-Za-z][\w.-]*(?:,[ ]+-{1,2}[A-Za-z][\w.-]*)*", re.MULTILINE)
_SECTION = re.compile(r"^-{3,}.*", re.MULTILINE | re.DOTALL)
_LOADER = re.compile(r"error while loading shared libraries: ([^:\s]+)")
_LIBC = re.compile(r"version `(GLIBC\w*_[\d.]+)' not found")


class NoLlamaServer(UsageProblem):
    """A program that runs, and is no llama-server, or one from before the prompt cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The identity and the flags of one binary, from `--version`, `--help`, `--list-devices`."""

    version: str
    commit: str | None
    build_number: int | None
    """As printed; None where it says nothing: a shallow clone counts the commits it has."""
    flags: tuple[tuple[str, ...], ...]
    """One tuple a flag: all its spellings, negations included, as `--help` groups them."""
    log_level: int
    """The `-lv` that shows cache decisions and no prompt text."""
    devices: tuple[str, ...]
    values: tuple[FlagValues, ...] = ()
    """What each flag takes, as `--help` describes it."""

    def supports(self, flag: str) -> bool:
        """Whether the build knows this spelling of a flag."""
        return any(flag in spellings for spellings in self.flags)

    def spellings(self, flag: str) -> tuple[str, ...]:
        """All spellings of one flag; just `flag` itself where the build does not know it."""
        return next((group for group in self.flags if flag in group), (flag,))

    def takes(self, flag: str) -> FlagValues | None:
        """Return what a flag takes; None where the build's help does not say."""
        name = self.spellings(flag)[0]
        return next((values for values in self.values if values.flag == name), None)

    def to_json(self) -> dict[str, Any]:
        """Plain data, to be handed to another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Capabilities:
        """The inverse of `to_json`."""
        return cls(
            **{
                **data,
                "flags": tuple(tuple(group) for group in data["flags"]),
                "devices": tuple(data["devices"]),
                "values": tuple(FlagValues.from_json(values) for values in data["values"]),
            }
        )


def probe(binary: Path, session: str = "probe") -> Capabilities:
    """What `binary` is and can do; `UsageProblem` when it cannot run or is no llama-server.

    `DoesNotRun` when this CPU lacks an instruction that it uses.

    `session` is that of the guard that sees to it that nothing is left of a hanging one.
    """
    check_executable(binary)
    version_text = _run(binary, "--version", session)
    help_text = _run(binary, "--help", session)
    if "--cache-ram" not in help_text or "--slot-save-path" not in help_text:
        raise NoLlamaServer(
            f"{binary} is not a llama-server: its --help names neither --cache-ram "
            "nor --slot-save-path",
            hint="pass the path of a llama-server executable, b9093 or newer",
        )
    entries = _entries(help_text)
    return Capabilities(
        version=_version_line(version_text),
        commit=_commit(version_text),
        build_number=_build_number(version_text),
        flags=tuple(spellings for spellings, _ in entries),
        log_level=_log_level(help_text),
        devices=_devices(_run(binary, "--list-devices", session)),
        values=tuple(FlagValues.described(names[0], text) for names, text in entries),
    )


def check_executable(binary: Path) -> None:
    """Raises `UsageProblem` unless `binary` is a file this user may execute."""
    if not os.path.exists(binary):  # noqa: PTH110  # says so of a name that is too long, too
        raise UsageProblem(f"{binary} does not exist", hint="check the path of your build")
    if binary.is_dir():
        inside = binary / "llama-server"
        hint = f"did you mean {inside}?" if inside.is_file() else "pass the path of the binary"
        raise UsageProblem(f"{binary} is a directory", hint=hint)
    if not os.access(binary, os.X_OK):
        raise UsageProblem(f"{binary} is not executable", hint=f"chmod +x {binary}")


def _run(binary: Path, option: str, session: str) -> str:
    try:
        process = subprocess.Popen(
            [binary, option],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=hermetic_environment(os.environ, session),
            start_new_session=True,
        )
    except OSError as error:
        raise UsageProblem(
            f"{binary} cannot be run: {error.strerror}", hint=_exec_hint(error)
        ) from None
    output = _output(process, f"{binary} {option}")
    if process.returncode in ENDED_BY_SIGILL:
        raise DoesNotRun(
            f"{binary} does not run on this CPU: {option} ends with SIGILL",
            hint="build it on this machine",
        )
    if process.returncode != 0:
        raise UsageProblem(
            f"{binary} {option} failed ({_ending(process.returncode)}): {_telling_line(output)}",
            hint=_loader_hint(output),
        )
    return output


def _output(process: subprocess.Popen[str], command: str) -> str:
    with process:
        try:
            return process.communicate(timeout=PROBE_SECONDS)[0]
        except subprocess.TimeoutExpired:
            raise UsageProblem(
                f"{command} did not end within {PROBE_SECONDS:.0f} s",
                hint="a llama-server answers at once",
            ) from None
        finally:
            if process.returncode is None:  # with what a wrapper script may have started
                os.killpg(process.pid, signal.SIGKILL)


def _exec_hint(error: OSError) -> str:
    if error.errno == errno.ENOEXEC:
        return f"it is not a program for this machine ({os.uname().machine}), or is damaged"
    if error.errno == errno.ENOENT:
        return "its interpreter or ELF loader is missing: was it built for another system?"
    return "check that this user may execute it"


def _ending(returncode: int) -> str:
    return f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}"


def _telling_line(output: str) -> str:
    """The line that says why: the loader's where there is one, else the last."""
    lines = [line for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if _LOADER.search(line) or _LIBC.search(line)]
    return (telling or lines[-1:] or ["no output"])[0].strip()


def _loader_hint(output: str) -> str:
    if missing := _LIBC.search(output):
        library = "C++ library" if missing[1].startswith("GLIBCXX") else "C library"
        return f"the system's {library} is older than the binary needs ({missing[1]})"
    if missing := _LOADER.search(output):
        package = " (Debian, Ubuntu: apt-get install libgomp1)" if "gomp" in missing[1] else ""
        return f"install the library {missing[1]}, or keep the build's folder together{package}"
    return "it should print its version, help and devices"


def _version_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if "version:" in line), "unknown")


def _commit(text: str) -> str | None:
    match = _VERSION.search(text)
    commit = (match["c1"] or match["c2"]) if match else None
    return None if commit == "unknown" else commit  # built from a tarball


def _build_number(text: str) -> int | None:
    match = _VERSION.search(text)
    number = int(match["n1"] or match["n2"]) if match else 0
    return number if number >= FIRST_NUMBER else None


def _entries(help_text: str) -> list[tuple[tuple[str, ...], str]]:
    """Return the spellings of each flag, with the text behind them up to the next flag.

    An entry of `--help` starts in the first column.
    """
    found = list(_HELP_FLAGS.finditer(help_text))
    ends = [*(match.start() for match in found[1:]), len(help_text)]
    return [
        (
            tuple(re.split(r",\s+", match[0])),
            _SECTION.sub("", help_text[match.end() : end]),
        )
        for match, end in zip(found, ends, strict=False)
    ]


def _log_level(help_text: str) -> int:
    """4 (trace) shows every cache decision and no prompt text.

    Builds before b9246 have no trace level: there 4 is debug, which prints prompts, and the cache
    lines come at 3 (info). The help text of the flag tells the two apart.
    """
    entry = re.search(r"^-lv,.*?(?=^-)", help_text, re.MULTILINE | re.DOTALL)
    return 4 if entry and re.search(r"4: trace", entry[0]) else 3


def _devices(text: str) -> tuple[str, ...]:
    lines = text.partition("Available devices:")[2].splitlines()
    return tuple(line.strip() for line in lines if line.strip() and line.strip() != "(none)")
