"""A real llama-server as a context manager: started, known to be ours, and gone at the end."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from harness.client import Client
from harness.errors import Disconnected, Refused, RequestError, ServerEnded, ServerError, TimedOut
from harness.replies import Props
from harness.server.capabilities import Capabilities
from harness.server.config import CPU, ServerConfig, argv, on_cpu
from harness.server.device import not_offloaded, offload
from harness.server.environment import hermetic_environment
from harness.server.guard import Guard
from harness.server.log import ServerLog

READY_SECONDS = 60.0
_STOP_SECONDS = 10.0
DYING_SECONDS = 5.0
_SLOWEST_POLL_SECONDS = 0.25
LOADING = 503
_POLLS_OF_LOG = 32
_POLL_SECONDS = 0.003


class ServerExited(ServerEnded):
    """A process of ours ended; says how, with its command line and last log lines."""

    def __init__(self, server: LlamaServer, returncode: int) -> None:
        how = (
            f"was killed by {_signal_name(-returncode)}"
            if returncode < 0
            else f"ended with exit code {returncode}"
        )
        launcher = server.program.launcher
        who = f"{launcher[0]}, which ran llama-server," if launcher else "llama-server"
        # Before it was ready it has not been sent any prompt that it could quote.
        self.why = server.error_at_start
        """What the server said was wrong before it was ready; empty where it was ready once."""
        said = f": {self.why}" if self.why else ""
        super().__init__(f"{who} {how}{said}", detail=server.describe())
        self.returncode = returncode


class ServerNotReady(ServerError):
    """The process lives but did not get ready before the deadline; says what was missing."""

    def __init__(self, server: LlamaServer, seconds: float, missing: str) -> None:
        super().__init__(
            f"llama-server was not ready after {seconds:.0f} s: {missing}",
            detail=server.describe(),
        )


@dataclass(frozen=True, slots=True)
class Program:
    """A server binary with what was found out about it, and the command it is started under."""

    binary: Path
    capabilities: Capabilities
    launcher: tuple[str, ...] = ()

    def command(self, config: ServerConfig) -> tuple[str, ...]:
        """The whole command line of a server with this configuration."""
        return (*self.launcher, str(self.binary), *argv(config, self.capabilities))


class LlamaServer:
    """One running llama-server.

    Inside the `with` block it is ready: our own process lives and listens on a loopback port the
    system chose, `/health` says ok, and `/props` gave our nonce back. Raises `ServerExited` or
    `ServerNotReady` otherwise.
    """

    def __init__(
        self,
        program: Program,
        config: ServerConfig,
        *,
        guard: Guard,
        log_path: Path,
        ready_seconds: float = READY_SECONDS,
    ) -> None:
        self.program = program
        self.config = replace(config, alias=config.alias or f"harness-{uuid.uuid4().hex[:12]}")
        self.command = program.command(self.config)
        self.log = ServerLog(log_path)
        self._guard = guard
        self._ready_seconds = ready_seconds
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None
        self._props: Props | None = None

    @property
    def props(self) -> Props:
        """What it said of itself when it was ready."""
        assert self._props is not None, "the server was never ready"
        return self._props

    @property
    def error_at_start(self) -> str:
        """What it said was wrong before it was ready; empty where it was ready once."""
        return "" if self._props else self.log.error(self._log_start)

    @property
    def client(self) -> Client:
        """Talks to this server."""
        assert self._client is not None, "the server is not running"
        return self._client

    @property
    def pid(self) -> int:
        """The process we started (the launcher's, where there is one)."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> None:
        """Starts the process and waits until it is ready; nothing is left behind on failure."""
        self._process = self._spawn()
        try:
            self._guard.add(self._process.pid)
            self._client = self._wait_until_ready()
            self._check_device()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the process and all it started. Safe to call again."""
        if self._client is not None:
            self._client.close()
            self._client = None
        process, self._process = self._process, None
        if process is None:
            return
        family = _family(process.pid)
        _signal_group(process.pid, signal.SIGTERM)
        try:
            _wait_for_end(process, _STOP_SECONDS)
        finally:
            # Its leader is not waited for before: until then the group's number is nobody else's.
            _signal_group(process.pid, signal.SIGKILL)
            _kill(family)
            process.wait()
            self._guard.discard(process.pid)

    def check_alive(self) -> None:
        """Raises `ServerExited` when the process we started is no longer running."""
        assert self._process is not None, "the server is not running"
        returncode = _ended(self._process)
        if returncode is not None:
            raise ServerExited(self, returncode)

    def cause(self, error: RequestError) -> RequestError | ServerExited:
        """Why a request failed: the death of the process, where that is it.

        A broken connection comes first, so an abort that is under way is given a moment.
        """
        assert self._process is not None, "the server is not running"
        if isinstance(error, Disconnected):
            returncode = _wait_for_end(self._process, DYING_SECONDS)
            if returncode is not None:
                return ServerExited(self, returncode)
        return error

    def describe(self) -> str:
        """The command line, ready to be copied, and the end of the log."""
        return (
            f"  command: {shlex.join(self.command)}\n"
            f"  log: {self.log.path}, its last lines:\n{_indented(self.log.tail())}"
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _spawn(self) -> subprocess.Popen[bytes]:
        path = self.log.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            log = path.open("ab")  # a scenario may start its server again
        except OSError as error:
            raise ServerError(f"the log {path} cannot be written: {error.strerror}") from None
        gpu = not on_cpu(self.config, self.program.capabilities)
        with log:
            self._log_start = log.tell()  # a scenario may start its server again
            try:
                return subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=hermetic_environment(os.environ, self._guard.session, gpu=gpu),
                    start_new_session=True,
                )
            except OSError as error:
                raise ServerError(f"{self.command[0]} cannot be run: {error.strerror}") from None

    def _wait_until_ready(self) -> Client:
        deadline = time.monotonic() + self._ready_seconds
        missing = "it does not listen"
        client: Client | None = None
        believed = True  # what the log says: something else may have written to it
        for poll in itertools.count():
            if time.monotonic() > deadline:
                break
            self.check_alive()
            if client is None:
                # The system lists the connections of all processes, which takes long where there
                # were many; the log tells as soon as the model is loaded.
                port = self.log.announced_port(self._log_start) if believed else None
                told = port is not None
                if not told and (not believed or poll % _POLLS_OF_LOG == _POLLS_OF_LOG - 1):
                    port = self._port()
                client = Client(f"http://127.0.0.1:{port}") if port else None
            if client is not None:
                try:
                    missing = self._missing(client, deadline)
                except ServerError:
                    if not told:
                        raise
                    missing = "it is not where its log says"
                if not missing:
                    return client
                if told:
                    client.close()
                    client, believed = None, False
            # A large model loads for minutes: ask less and less often.
            time.sleep(min(_POLL_SECONDS * 1.02 ** min(poll, 500), _SLOWEST_POLL_SECONDS))
        if client is not None:
            client.close()
        raise ServerNotReady(self, self._ready_seconds, missing)

    def _missing(self, client: Client, deadline: float) -> str:
        """What is still missing; empty when the server is ready."""
        left = max(0.1, deadline - time.monotonic())
        try:
            client.health(timeout=left)
            props = client.props(timeout=left)
        except (Disconnected, TimedOut) as error:
            return error.message
        except Refused as error:
            if error.status != LOADING:
                raise ServerError(error.message, detail=self.describe()) from error
            return "it is still loading its model"
        except RequestError as error:  # it speaks, but not as a llama-server
            raise ServerError(error.message, detail=self.describe()) from error
        if props.model_alias != self.config.alias:
            raise ServerError(
                f"{client.url} answers as {props.model_alias!r}, not as {self.config.alias!r}: "
                "it is not the server that was started",
                detail=self.describe(),
            )
        self._props = props
        return ""

    def _check_device(self) -> None:
        """Raises `ServerError` where a server does not say that it is on the GPU it should be."""
        device = self.config.device
        if device is None or device == CPU:
            return
        report = offload(self.log.since(self._log_start).text())
        if missing := not_offloaded(report, device):
            raise ServerError(f"by the server's log {missing}", detail=self.describe())

    def _port(self) -> int | None:
        """The port our own process listens on, or one it has started; None where none is told."""
        assert self._process is not None
        for process in _family(self._process.pid):
            try:
                # On 127.0.0.1; to list IPv6 too would take as long again.
                connections = process.net_connections(kind="tcp4")
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            for connection in connections:
                if connection.status == psutil.CONN_LISTEN:
                    return int(connection.laddr.port)
        return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """How a process has ended, as Popen puts it, leaving its number taken; None while it runs."""
    if process.returncode is not None:
        return process.returncode
    end = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if end is None:
        return None
    return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status


def _wait_for_end(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while (returncode := _ended(process)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return returncode


def _family(pid: int) -> list[psutil.Process]:
    """The process and its descendants, the process itself first."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kill(processes: list[psutil.Process]) -> None:
    """Kills what is left of a family: a debugger's child is in a process group of its own.

    psutil compares start times, so that a number used again is never mistaken for ours.
    """
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    deadline = time.monotonic() + _STOP_SECONDS
    while any(runs(process) for process in processes) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def runs(process: psutil.Process) -> bool:
    """A zombie does not: in a container, the process that inherits it may never wait for it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()) or "    (empty)"
