"""One scenario: a fresh server, a sequence of requests, and everything that was wrong with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from harness.accounting import violations
from harness.answers import other_text, unlike_cold, wrong_cell
from harness.bench import Bench
from harness.client import Client, LoraField, Options
from harness.errors import ReferenceTrouble, RequestError, TimedOut
from harness.expect import Claim, Failure, Kind
from harness.history import History
from harness.ledger import RequestRow
from harness.prompts import Prompt, Route
from harness.reference import send
from harness.replies import CompletionReply, Reply
from harness.server.config import ServerConfig
from harness.server.log import LogSlice
from harness.server.process import LlamaServer, ServerExited
from harness.setting import Setting


class NoField:
    """The `lora` field is left out of a request: the server-wide scales apply."""


NO_FIELD = NoField()

NOT_JUDGED = "not judged"
"""How answers were judged that could not be."""

T = TypeVar("T")

Lora = Mapping[str, float] | NoField
"""What a request says of its adapters: scales by letter, `{}` for `[]`, or NO_FIELD."""


@dataclass(frozen=True, slots=True)
class Step:
    """A request that was sent, with the part of the server's log it caused."""

    row: RequestRow
    details: tuple[str, ...]
    """The `detail` of each of the row's failures."""
    log: LogSlice | None


class ScenarioFailed(Exception):
    """A scenario found something wrong; `scenario` has all its steps."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(", ".join(scenario.signature()))
        self.scenario = scenario


class _Ended(Exception):
    """The scenario cannot go on; what happened is recorded."""


@dataclass(slots=True)
class Stopwatch:
    """Runs inside its `with` blocks, and knows what is left of its seconds."""

    seconds: float
    _since: float = 0.0

    @property
    def left(self) -> float:
        """Seconds left now; always enough to fail with a message."""
        running = time.monotonic() - self._since if self._since else 0.0
        return max(0.1, self.seconds - running)

    def __enter__(self) -> Self:
        self._since = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds -= time.monotonic() - self._since
        self._since = 0.0


@dataclass(slots=True)
class Scenario:
    """A context manager around one scenario's server.

    On leaving the block `ScenarioFailed` is raised when any step failed; all steps run before,
    unless the server died, hung or refused one.
    """

    bench: Bench
    config: ServerConfig
    adapters: Mapping[str, float]
    """The adapters loaded, and their server-wide scales from the start."""
    route: Route
    directory: Path
    """For the server's log and slot files."""
    seconds: float
    """How long all its requests together may take; so, besides, may those of the reference."""
    compare_cold: bool = True
    """False where a cold run would cost too much: answers are then judged by their cell alone."""
    steps: list[Step] = field(default_factory=list)
    _history: History = field(default_factory=History)
    _server: LlamaServer | None = None
    _server_wide: dict[str, float] = field(default_factory=dict)
    _watch: Stopwatch = field(init=False)
    _reference_watch: Stopwatch = field(init=False)

    def __post_init__(self) -> None:
        self._watch = Stopwatch(self.seconds)
        self._reference_watch = Stopwatch(self.seconds)

    @property
    def server(self) -> LlamaServer:
        """The running server."""
        assert self._server is not None, "the scenario has not begun"
        return self._server

    def ask(
        self,
        name: str,
        prompt: Prompt,
        *,
        lora: Lora,
        reuse: Claim = Claim.ALLOWED,
        slot: int | None = None,
    ) -> Reply:
        """Sends one request and judges its reuse, its answer and its numbers.

        `name` is unique in the scenario. An explicit `lora` states every loaded adapter.
        """
        assert name not in {step.row.step for step in self.steps}, f"two steps named {name!r}"
        assert isinstance(reuse, Claim), "a step states a claim, never a number"
        setting = self._setting(lora)
        if self.bench.model.oracle is not None:
            self.bench.model.oracle.expected(setting.as_dict())  # raises for scales no cell tells
        tokens = self._tokens(name, prompt)
        possible = self._history.possible(tokens, setting)
        bounds = reuse.bounds(
            possible,
            len(tokens),
            memory=self.bench.model.memory,
            ubatch=self.bench.ubatch(self.config),
        )
        row = RequestRow(
            step=name,
            route=self.route,
            lora=None if isinstance(lora, NoField) else dict(lora),
            setting=setting.as_dict(),
            slot_asked=slot,
            prompt_tokens=len(tokens),
            possible=possible,
            claim=reuse.value,
            expected=(bounds.lower, bounds.upper) if bounds else None,
        )
        options = Options(lora=self._field(lora), id_slot=slot)
        reply, log = self._exchange(row, prompt, options)
        self._history.add((*tokens, *(t.id for t in reply.tokens[:-1])), setting)
        failures = list(_violations(reply, len(tokens), options))
        answer = None
        try:
            if bounds is not None:
                failures += filter(None, [bounds.judge(reply.timings.cache_n)])
                answer, wrong = self._judge_answer(prompt, setting, reply, len(tokens))
                failures += wrong
        finally:
            self._record(_with_reply(row, reply, answer), failures, log)
        return reply

    def act(self, name: str, call: Callable[[Client, float], T]) -> T:
        """Does something else with the server, as a step of its own.

        `call` gets the client and the seconds left. A refusal or a crash is the step's failure.
        """
        return self._act(RequestRow(step=name, route=""), call)

    def set_server_wide(self, scales: Mapping[str, float]) -> None:
        """`POST /lora-adapters`: states the server-wide scale of every loaded adapter."""
        assert scales.keys() == self.adapters.keys(), "state every loaded adapter"
        field = [(self._id(letter), scale) for letter, scale in scales.items()]
        row = RequestRow(
            step=f"POST /lora-adapters {len(self.steps)}",
            route="/lora-adapters",
            lora=dict(scales),
            setting=Setting.of(scales).as_dict(),
        )
        self._act(row, lambda client, seconds: client.set_lora_adapters(field, timeout=seconds))
        self._server_wide = dict(scales)

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

    def __enter__(self) -> Self:
        self._server_wide = dict(self.adapters)
        self._server = self.bench.server(self.config, self.directory / "server.log")
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            if error is None:
                self._check_alive_at_the_end()
        finally:
            self.server.stop()
        if error is not None and not isinstance(error, _Ended):
            return False
        if self.signature():
            raise ScenarioFailed(self) from None
        return True

    def _exchange(
        self, row: RequestRow, prompt: Prompt, options: Options
    ) -> tuple[Reply, LogSlice]:
        log = self.server.log
        start = log.position()
        try:
            with self._watch:
                reply = send(self.server.client, self.route, prompt, options, self._watch.left)
            self.server.check_alive()
        except (RequestError, ServerExited) as error:
            failure = self._failure(error)
            self._record(row, [failure], log.since(start))
            raise _Ended from error
        return reply, log.request_slice(start)

    def _act(self, row: RequestRow, call: Callable[[Client, float], T]) -> T:
        log = self.server.log
        start = log.position()
        try:
            with self._watch:
                done = call(self.server.client, self._watch.left)
        except RequestError as error:
            self._record(row, [self._failure(error)], log.since(start))
            raise _Ended from error
        self._record(row, [], log.since(start))
        return done

    def _tokens(self, name: str, prompt: Prompt) -> tuple[int, ...]:
        client = self.server.client
        try:
            with self._watch:
                return self.bench.tokens(client, self.route, prompt, self._watch.left)
        except RequestError as error:
            self._record(RequestRow(step=name, route=self.route), [self._failure(error)])
            raise _Ended from error

    def _judge_answer(
        self, prompt: Prompt, setting: Setting, reply: Reply, prompt_tokens: int
    ) -> tuple[str, list[Failure]]:
        """How the answer was judged, and all that is wrong with it."""
        if not reply.tokens:
            return NOT_JUDGED, [Failure(Kind.ACCOUNTING, "the reply reports no probabilities")]
        by, texts = [], []
        oracle = self.bench.model.oracle
        if oracle is not None:
            by.append("cell")
            texts.append(wrong_cell(oracle, reply.tokens, setting.as_dict()))
            texts.append(other_text(oracle, reply))
        if self.compare_cold:
            with self._reference_watch:
                how, text = self._against_cold(prompt, setting, reply, prompt_tokens)
            by.append(how)
            texts.append(text)
        failures = [Failure(Kind.WRONG_ANSWER, text) for text in texts if text]
        return "; ".join(by) or NOT_JUDGED, failures

    def _against_cold(
        self, prompt: Prompt, setting: Setting, reply: Reply, prompt_tokens: int
    ) -> tuple[str, str | None]:
        """How the answer compares with a cold run's: by what tolerance, and what is wrong."""
        reference = self.bench.reference(self.config)
        tolerance = reference.tolerance(self._reference_watch.left)
        if not tolerance.tells:
            blind = f"{NOT_JUDGED}: noise hides what other adapters do, {tolerance}"
            if self.bench.model.oracle is not None:
                # On a generated model other adapters make a difference of many nats: such noise
                # is no noise.
                raise ReferenceTrouble(f"the control is {blind}")
            return blind, None
        cold = reference.cold(self.route, prompt, setting, self._reference_watch.left)
        for broken in _violations(cold, prompt_tokens, Options()):
            raise ReferenceTrouble(f"cold run: {broken.message}")
        return f"cold run, within {tolerance}", unlike_cold(cold, reply, tolerance)

    def _failure(self, error: RequestError | ServerExited) -> Failure:
        """What a request that got no proper answer says about the server."""
        cause = self.server.cause(error) if isinstance(error, RequestError) else error
        if isinstance(cause, ServerExited):
            return Failure(Kind.CRASH, cause.message, cause.detail)
        if isinstance(cause, TimedOut):
            used = f"the scenario's {self.seconds:g} s are used up (--llama-timeout)"
            return Failure(Kind.HANG, f"{cause.message}; {used}", cause.detail)
        return Failure(Kind.REFUSED, cause.message, cause.detail)

    def _record(
        self, row: RequestRow, failures: Sequence[Failure], log: LogSlice | None = None
    ) -> None:
        found = tuple((failure.kind.value, failure.message) for failure in failures)
        details = tuple(failure.detail for failure in failures)
        self.steps.append(Step(replace(row, failures=found), details, log))

    def _check_alive_at_the_end(self) -> None:
        try:
            self.server.check_alive()
        except ServerExited as error:
            self._record(RequestRow(step="end", route=self.route), [self._failure(error)])

    def _setting(self, lora: Lora) -> Setting:
        if isinstance(lora, NoField):
            return Setting.of(self._server_wide)
        if not lora:
            # Upstream reads `[]` as the field left out; others read "no adapter". Under
            # server-wide scales of 0 both are the same setting.
            assert not any(self._server_wide.values()), "`[]` means two things here"
            return Setting()
        assert lora.keys() == self.adapters.keys(), "state every loaded adapter"
        return Setting.of(lora)

    def _field(self, lora: Lora) -> LoraField | None:
        if isinstance(lora, NoField):
            return None
        return [(self._id(letter), scale) for letter, scale in lora.items()]

    def _id(self, letter: str) -> int:
        """llama-server numbers adapters in the order of its command line."""
        return list(self.adapters).index(letter)


def _violations(reply: Reply, prompt_tokens: int, options: Options) -> tuple[Failure, ...]:
    return violations(
        reply,
        prompt_tokens=prompt_tokens,
        n_predict=options.n_predict,
        id_slot=options.id_slot,
    )


def _with_reply(row: RequestRow, reply: Reply, answer: str | None) -> RequestRow:
    return replace(
        row,
        slot=reply.id_slot if isinstance(reply, CompletionReply) else None,
        cache_n=reply.timings.cache_n,
        prompt_n=reply.timings.prompt_n,
        predicted_n=reply.timings.predicted_n,
        prompt_ms=reply.timings.prompt_ms,
        answer=answer,
    )
