"""A llama-server that a person started, under a debugger, say: used, and never ended."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import msgspec
import psutil

from harness.client import Client
from harness.errors import (
    Disconnected,
    NotTestable,
    OtherServerNeeded,
    Refused,
    RequestError,
    ServerEnded,
    ServerError,
    TimedOut,
    UsageProblem,
)
from harness.replies import Props
from harness.server.capabilities import Capabilities
from harness.server.config import LoadedAdapter, ServerConfig, grouped, reserved
from harness.server.listener import Listener
from harness.server.log import UnreadLog
from harness.server.process import DYING_SECONDS, LOADING, Program, runs

_POLL_SECONDS = 0.05
_SAME_SCALE = 1e-6
_SAME_START_SECONDS = 1.0
"""Start times are read against the clock, which may be corrected meanwhile."""

_UNSPEAKABLE = ("--api-key", "--api-key-file", "--api-prefix", "--ssl-key-file", "--ssl-cert-file")
_SECRET = "--hf-token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A running server, by its process, and what it was started with."""

    url: str
    pid: int
    started: float
    command: tuple[str, ...]
    """Its command line, but for what is nobody's business."""
    model: Path
    adapters: tuple[LoadedAdapter, ...]
    extra_args: tuple[str, ...]
    """Its words as those of a person who may set all but what is the harness's own."""

    def to_json(self) -> dict[str, Any]:
        """Plain data, to be handed to another process."""
        plain: dict[str, Any] = msgspec.to_builtins(asdict(self), enc_hook=str)
        return plain

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return msgspec.convert(data, cls, dec_hook=lambda kind, value: kind(value))

    def facts(self) -> dict[str, Any]:
        """What a ledger says of it."""
        return {"url": self.url, "pid": self.pid, "argv": list(self.command)}

    def unlike(self, config: ServerConfig) -> tuple[str, ...]:
        """Where it has other adapters than a configuration, naming both."""
        wanted = tuple(LoadedAdapter(a.path.resolve(), a.scale) for a in config.adapters)
        if wanted == self.adapters:
            return ()
        names = _listed(wanted), _listed(self.adapters)
        if names[0] == names[1]:  # of other directories
            names = _listed(wanted, paths=True), _listed(self.adapters, paths=True)
        return (f"needs {names[0]}, the server was started with {names[1]}",)


def attached(found: Listener, capabilities: Capabilities) -> Attached:
    """What a server was started with, by its command line.

    Raises `UsageProblem` where that is none the harness can do with.
    """
    flags = grouped(found.words, capabilities, "the server's own command line")
    command, own = [str(found.program)], list[str]()
    for flag in flags:
        if _SECRET in capabilities.spellings(flag[0]):
            continue
        command += flag
        if not reserved(flag[0], capabilities):
            own += flag
    _check_speaks(flags, capabilities)
    models = [flag for flag in flags if "--model" in capabilities.spellings(flag[0])]
    if not models or len(models[-1]) < 2:
        raise UsageProblem("the server's own command line names no model")
    return Attached(
        url=found.url,
        pid=found.pid,
        started=found.started,
        command=tuple(command),
        model=(found.directory / models[-1][1]).resolve(),
        adapters=tuple(_adapters(flags, capabilities, found.directory)),
        extra_args=tuple(own),
    )


class AttachedServer:
    """The server of one scenario, where a person has started it: what `LlamaServer` is elsewhere.

    To start it is to find it as it was when it was started; to stop it is to leave it alone.
    """

    def __init__(
        self, attached: Attached, program: Program, config: ServerConfig, *, ready_seconds: float
    ) -> None:
        self.program = program
        self.config = config
        self.command = attached.command
        self.log = UnreadLog()
        self.pid = attached.pid
        self._attached = attached
        self._ready_seconds = ready_seconds
        self._client: Client | None = None
        self._props: Props | None = None

    @property
    def props(self) -> Props:
        """What it said of itself when it was ready."""
        assert self._props is not None, "the server was never ready"
        return self._props

    @property
    def client(self) -> Client:
        """Talks to this server."""
        assert self._client is not None, "the server is not attached to"
        return self._client

    def start(self) -> None:
        """Waits until it is ready. Raises `NotTestable` where it is not as it was started."""
        if not self._lives():
            raise self._needed_again("has ended")
        client = Client(self._attached.url)
        try:
            self._props = self._when_ready(client)
            self._check_fresh(client)
        except RequestError as error:
            client.close()
            raise ServerError(error.message, detail=self.describe()) from error
        except BaseException:
            client.close()
            raise
        self._client = client

    def stop(self) -> None:
        """Gives up the connection. Safe to call again."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def check_alive(self) -> None:
        """Raises `ServerEnded` when the process that was found is no longer running."""
        if not self._lives():
            raise self._ended()

    def cause(self, error: RequestError) -> RequestError | ServerEnded:
        """Why a request failed: the end of the process, or a debugger, where that is it.

        A broken connection comes first, so an abort that is under way is given a moment.
        """
        if isinstance(error, Disconnected):
            deadline = time.monotonic() + DYING_SECONDS
            while (lives := self._lives()) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            if not lives:
                return self._ended()
        if isinstance(error, TimedOut) and self._is_stopped():
            return TimedOut(f"{error.message}, and the process is stopped, as by a debugger")
        return error

    def describe(self) -> str:
        """The command line, ready to be copied, and who has the log."""
        return (
            f"  command: {shlex.join(self.command)}\n"
            f"  process {self.pid} was attached to: its log is where it was started"
        )

    def _when_ready(self, client: Client) -> Props:
        deadline = time.monotonic() + self._ready_seconds
        while True:
            left = max(0.1, deadline - time.monotonic())
            try:
                client.health(timeout=left)
                return client.props(timeout=left)
            except Refused as error:
                if error.status != LOADING or time.monotonic() > deadline:
                    raise
            except (TimedOut, Disconnected) as error:
                raise self.cause(error) from error
            self.check_alive()
            time.sleep(_POLL_SECONDS)

    def _check_fresh(self, client: Client) -> None:
        """What an earlier request left would be reused."""
        try:
            slots = client.slots(timeout=self._ready_seconds)
        except Refused as error:
            raise NotTestable(
                "the attached server does not say whether it has answered before: "
                f"{error.message}; start it with --slots"
            ) from None
        if any(slot.used for slot in slots):
            raise self._needed_again("has answered before", " (select one scenario with -k)")
        loaded = client.lora_adapters(timeout=self._ready_seconds)
        scales = [adapter.scale for adapter in self._attached.adapters]
        apart = (abs(one.scale - scale) for one, scale in zip(loaded, scales, strict=False))
        if len(loaded) != len(scales) or max(apart, default=0.0) > _SAME_SCALE:
            raise self._needed_again("has other adapter scales than it was started with")

    def _needed_again(self, what: str, how: str = "") -> OtherServerNeeded:
        return OtherServerNeeded(
            f"the attached server {what}: start it again{how}", command=self.command
        )

    def _ended(self) -> ServerEnded:
        what = f"llama-server (process {self.pid}, which was attached to) has ended"
        return ServerEnded(what, detail=self.describe())

    def _lives(self) -> bool:
        """Whether it is still the process that was found."""
        try:
            process = psutil.Process(self.pid)
            apart = abs(process.create_time() - self._attached.started)
        except psutil.NoSuchProcess:
            return False
        return apart < _SAME_START_SECONDS and runs(process)

    def _is_stopped(self) -> bool:
        try:
            status = psutil.Process(self.pid).status()
        except psutil.NoSuchProcess:
            return False
        return status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def _check_speaks(flags: tuple[tuple[str, ...], ...], capabilities: Capabilities) -> None:
    for flag in flags:
        if set(_UNSPEAKABLE) & set(capabilities.spellings(flag[0])):
            raise UsageProblem(
                f"the server was started with {flag[0]}", hint=reserved(flag[0], capabilities)
            )


def _adapters(
    flags: tuple[tuple[str, ...], ...], capabilities: Capabilities, directory: Path
) -> Iterator[LoadedAdapter]:
    """Those of `--lora` and `--lora-scaled`, in the order of their numbers."""
    for name, *values in flags:
        spellings = capabilities.spellings(name)
        if "--lora" not in spellings and "--lora-scaled" not in spellings:
            continue
        for text in (part for value in values for part in value.split(",")):
            path, _, scale = text.rpartition(":") if "--lora" not in spellings else (text, "", "1")
            try:
                yield LoadedAdapter((directory / path).resolve(), float(scale))
            except ValueError:
                raise UsageProblem(
                    f"the server's own command line: {name} {text} has no scale"
                ) from None


def _listed(adapters: tuple[LoadedAdapter, ...], *, paths: bool = False) -> str:
    names = (f"{a.path if paths else a.path.name}:{a.scale:g}" for a in adapters)
    return f"adapters {','.join(names)}" if adapters else "no adapter"
