"""The server of a scenario: started, called, restarted, ended, with every step on record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self, TypeVar, Unpack

from harness.bench import Bench, ServerUnderTest
from harness.client import Client
from harness.errors import (
    NotTestable,
    Refused,
    RequestError,
    ServerEnded,
    ServerError,
    TimedOut,
)
from harness.expect import Failure, Kind
from harness.explain import Logged, explained, unexplained
from harness.ledger import Call, RequestRow
from harness.reasons.course import DEFAULTS, Rules
from harness.server.config import ConfigFields, ServerConfig
from harness.server.log import LogSlice, UnreadLog
from harness.server.log_reader import events
from harness.server.process import ServerNotReady
from harness.stopwatch import Stopwatch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """A request that was sent, with the part of the server's log it caused."""

    row: RequestRow
    details: tuple[str, ...]
    """The `detail` of each of the row's failures."""
    log: LogSlice | None
    told: LogSlice | None = None
    """The same part with what came after the step before; None where the log is not read."""
    rules: Rules = DEFAULTS

    def logged(self) -> Logged:
        """The step as it is explained."""
        if self.told is None:
            return Logged(self.row, None, self.rules)
        return Logged(self.row, events(self.told.text().splitlines()), self.rules)


class ScenarioFailed(Exception):
    """A scenario found something wrong; the message is its signature."""


class _Ended(Exception):
    """The scenario cannot go on; what happened is recorded."""


@dataclass(slots=True, kw_only=True, repr=False)  # a traceback must not show a prompt
class Stage:
    """A context manager around the server of one scenario.

    On leaving the block `ScenarioFailed` is raised when any step failed; all steps run before,
    unless the server died, hung or refused one.
    """

    bench: Bench
    config: ServerConfig
    directory: Path
    """For the server's log and slot files."""
    seconds: float
    """How long all calls together may take."""
    steps: list[Step] = field(default_factory=list)
    _server: ServerUnderTest | None = None
    _told: int = 0
    """How far the log belongs to steps."""
    _watch: Stopwatch = field(init=False)

    def __post_init__(self) -> None:
        self._watch = Stopwatch(self.seconds)

    @property
    def server(self) -> ServerUnderTest:
        """The running server."""
        assert self._server is not None, "the scenario has not begun"
        return self._server

    @property
    def judged(self) -> bool:
        """Whether any step claimed anything that could be judged."""
        return any(step.row.expected and step.row.cache_n is not None for step in self.steps)

    @property
    def command(self) -> tuple[str, ...]:
        """The server's command line; empty before there is one."""
        return self._server.command if self._server else ()

    def signature(self) -> tuple[str, ...]:
        """The failed `step: kind` pairs, sorted."""
        return tuple(
            sorted({f"{s.row.step}: {kind}" for s in self.steps for kind, _ in s.row.failures})
        )

    def explain(self) -> None:
        """Gives the steps that failed, or reused less than they might, their reasons."""
        try:
            rows = explained(step.logged() for step in self.steps)
        except Exception as error:  # no trouble with a reason is to cost a verdict
            rows = [unexplained(step.row, error) for step in self.steps]
        self.steps[:] = [replace(s, row=row) for s, row in zip(self.steps, rows, strict=True)]

    def restart(self, **changes: Unpack[ConfigFields]) -> None:
        """Ends the server and starts a new one, with other values for some fields.

        It has nothing of what the old one held, but for the slot files. Raises `NotTestable` where
        the build or the user's own arguments do not allow the change.
        """
        if self.bench.attached is not None:
            raise NotTestable("a server that was attached to is not started again by a scenario")
        before = sum(step.row.route == Call.RESTART for step in self.steps)
        row = self._new_row(f"restart {before + 1}", Call.RESTART)
        self.config = self.bench.changed(self.config, **changes)
        self._check_alive(row)
        self.server.stop()
        try:
            self._start()
        except ServerEnded as error:  # it has started before
            self._end(row, error)
        except ServerNotReady as error:
            self._record(row, [Failure(Kind.HANG, error.message, error.detail)])
            raise _Ended from error
        self._record(row, [])

    def __enter__(self) -> Self:
        self.bench.check_starts(self.config)
        try:
            self._start()
        except ServerError as error:
            self.bench.start_failed(self.config, error)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            if error is None or isinstance(error, NotTestable):
                self._check_alive(self._new_row("end"))
        except _Ended as ended:
            error = ended
        finally:
            self.server.stop()
        if error is not None and not isinstance(error, _Ended | NotTestable):
            return False
        if self.signature():
            raise ScenarioFailed(", ".join(self.signature())) from None
        return not isinstance(error, NotTestable)

    def _start(self) -> None:
        """A new server, which holds nothing."""
        self._server = self.bench.under_test(self.config, self.directory / "server.log")
        self._server.start()

    def _call(self, row: RequestRow, call: Callable[[Client, float], T]) -> tuple[T, LogSlice]:
        """What came of a call, which is still to be recorded. The scenario ends where it failed."""
        done, log = self._call_refusable(row, call)
        if isinstance(done, Refused):
            self._end(row, done, log)
        return done, log

    def _call_refusable(
        self, row: RequestRow, call: Callable[[Client, float], T]
    ) -> tuple[T | Refused, LogSlice]:
        """The same of a call that may be answered with an HTTP error."""
        log = self.server.log
        start = log.position()
        done: T | Refused
        try:
            with self._watch:
                try:
                    done = call(self.server.client, self._watch.left)
                except Refused as refusal:
                    done = refusal
            self.server.check_alive()
        except (RequestError, ServerEnded) as error:
            failure = self._failure(error)  # which waits for the server's last words
            self._record(row, [failure], log.since(start))
            raise _Ended from error
        return done, log.since(start)

    def _end(
        self, row: RequestRow, error: RequestError | ServerEnded, log: LogSlice | None = None
    ) -> NoReturn:
        """Ends the scenario with this step."""
        self._record(row, [self._failure(error)], log)
        raise _Ended from error

    def _failure(self, error: RequestError | ServerEnded) -> Failure:
        """What a request that got no proper answer says about the server."""
        cause = self.server.cause(error) if isinstance(error, RequestError) else error
        if isinstance(cause, ServerEnded):
            return Failure(Kind.CRASH, cause.message, cause.detail)
        if isinstance(cause, TimedOut):
            used = f"the scenario's {self.seconds:g} s are used up (--llama-timeout)"
            return Failure(Kind.HANG, f"{cause.message}; {used}", cause.detail)
        return Failure(Kind.REFUSED, cause.message, cause.detail)

    def _new_row(self, name: str, route: str = "") -> RequestRow:
        """The row of a step that is no request for an answer."""
        self._check_name(name)
        return RequestRow(step=name, route=route)

    def _check_name(self, name: str) -> None:
        assert name not in {step.row.step for step in self.steps}, f"two steps named {name!r}"

    def _record(
        self, row: RequestRow, failures: Sequence[Failure], log: LogSlice | None = None
    ) -> None:
        row = replace(row, failures=tuple((f.kind.value, f.message) for f in failures))
        since = self.server.log.since(self._told)
        told = replace(since, end=log.end) if log else since
        self._told = told.end
        details = tuple(failure.detail for failure in failures)
        read = not isinstance(self.server.log, UnreadLog)
        rules = self.bench.rules(self.config)
        self.steps.append(Step(row, details, log if read else None, told if read else None, rules))

    def _check_alive(self, row: RequestRow) -> None:
        try:
            self.server.check_alive()
        except ServerEnded as error:
            self._end(row, error)
