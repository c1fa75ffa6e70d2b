"""The process that listens at a URL of this machine, as far as it may be looked at."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import psutil

from harness.errors import UsageProblem

_EXAMPLE = "http://127.0.0.1:8080"
_LOCALHOST = ("127.0.0.1", "::1")
# llama-server reads every flag from such a variable too: they would decide unseen.
_DECIDING = re.compile(r"LLAMA_(ARG_|API_KEY$)")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A process, and how it was started."""

    url: str
    """Where it listens, by the address rather than a name."""
    pid: int
    started: float
    """With the number, what tells it from any later process."""
    program: Path
    words: tuple[str, ...]
    """Its command line after the program's name."""
    directory: Path
    """What relative paths among the words are relative to."""


def listener(url: str) -> Listener:
    """The process that listens at `--llama-url`.

    Raises `UsageProblem` where there is none, it may not be looked at, or what it runs cannot be
    known by its command line.
    """
    option = f"--llama-url={url}"
    parts = _parts(url, option)
    address, pid = _listening(parts, option)
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            program, words = Path(process.exe()), tuple(process.cmdline()[1:])
            _check_words(words, program, option)
            _check_environment(process, option)
            _check_files(process, program, option)
            return Listener(
                url=_url(address, parts.port or 0),
                pid=pid,
                started=process.create_time(),
                program=program,
                words=words,
                directory=Path(process.cwd()),
            )
    except psutil.NoSuchProcess:
        raise _nobody(option) from None
    except psutil.AccessDenied:
        raise _hidden(option) from None


def _parts(url: str, option: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        complete = parts.scheme == "http" and parts.hostname and parts.port
    except ValueError:  # a port that is none
        complete = None
    if not complete or parts.path not in ("", "/") or parts.query or "@" in parts.netloc:
        raise UsageProblem(f"{option}: that is no http://HOST:PORT", hint=f"e.g. {_EXAMPLE}")
    return parts


def _addresses(parts: SplitResult, option: str) -> Iterator[_Address]:
    """Those that a host name stands for; only this machine's own count."""
    host = parts.hostname or ""
    for text in _LOCALHOST if host == "localhost" else (host,):
        with suppress(ValueError):
            address = ipaddress.ip_address(text)
            if address.is_loopback:
                yield address
                continue
        raise UsageProblem(
            f"{option}: {host} is no loopback address",
            hint="what a server was started with can be told on its own machine only: "
            f"run there, with {_EXAMPLE}",
        )


def _listening(parts: SplitResult, option: str) -> tuple[_Address, int]:
    """The address, and the process that has it."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        raise _hidden(option) from None
    by_address: dict[_Address, int | None] = {
        ipaddress.ip_address(found.laddr.ip): found.pid
        for found in connections
        if found.status == psutil.CONN_LISTEN and found.laddr and found.laddr.port == parts.port
    }
    everywhere = next((own for own in by_address if own.is_unspecified), None)
    for address in _addresses(parts, option):
        own = address if address in by_address else everywhere
        if own is not None:
            pid = by_address[own]
            if pid is None:
                raise _hidden(option)
            return address, pid
    raise _nobody(option)


def _check_words(words: tuple[str, ...], program: Path, option: str) -> None:
    """Before it is run to say what it is: it may be anything, by a mistake of a digit."""
    if not {"-m", "--model"} & set(words):
        raise UsageProblem(
            f"{option}: {program.name} listens there, which was started without --model",
            hint="start a llama-server with a file; `llama-harness model` prints where some are",
        )


def _check_environment(process: psutil.Process, option: str) -> None:
    try:
        environ = process.environ()
    except psutil.AccessDenied:
        return
    if names := sorted(name for name in environ if _DECIDING.match(name)):
        raise UsageProblem(
            f"{option}: that server has {', '.join(names)} in its environment",
            hint="start it without, and say on its command line what it is to do",
        )


def _check_files(process: psutil.Process, program: Path, option: str) -> None:
    """What is examined and compared with must be what runs."""
    try:
        maps = Path(f"/proc/{process.pid}/maps").read_text(errors="replace")
    except OSError:
        return
    for line in maps.splitlines():
        path = line.removesuffix(" (deleted)")
        if path != line and (path.endswith(f" {program}") or ".so" in path.rpartition("/")[2]):
            raise UsageProblem(
                f"{option}: {path.rpartition('/')[2]} is another one since that server was started",
                hint="it was built again: start the server again",
            )


def _url(address: _Address, port: int) -> str:
    return f"http://[{address}]:{port}" if address.version == 6 else f"http://{address}:{port}"


def _nobody(option: str) -> UsageProblem:
    return UsageProblem(f"{option}: nobody listens there", hint="start a llama-server first")


def _hidden(option: str) -> UsageProblem:
    return UsageProblem(
        f"{option}: the process that listens there cannot be looked at",
        hint="start the server as the same user, on this machine and not in a container",
    )
