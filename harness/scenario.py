"""One scenario: a fresh server, a sequence of requests, and everything that was wrong with them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.accounting import violations
from harness.answers import unlike_cold, wrong_cell
from harness.bench import Bench, send
from harness.client import LoraField, Options
from harness.errors import RequestError, ServerError, TimedOut
from harness.expect import Claim, Failure, Kind
from harness.history import History
from harness.ledger import RequestRow
from harness.prompts import Prompt, Route
from harness.replies import CompletionReply, Reply
from harness.server.config import ServerConfig
from harness.server.log import LogSlice
from harness.server.process import LlamaServer, ServerExited
from harness.setting import Setting


class NoField:
    """The `lora` field is left out of a request: the server-wide scales apply."""


NO_FIELD = NoField()

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
    """How long the whole scenario may take."""
    compare_cold: bool = True
    """False where a cold run would cost too much: answers are then judged by their cell alone."""
    steps: list[Step] = field(default_factory=list)
    _history: History = field(default_factory=History)
    _server: LlamaServer | None = None
    _server_wide: dict[str, float] = field(default_factory=dict)
    _deadline: float = 0.0

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
        setting = self._setting(lora)
        try:
            tokens = self.bench.tokens(self.server.client, self.route, prompt)
        except RequestError as error:
            raise self._fatal(name, error) from error
        possible = self._history.possible(tokens, setting)
        bounds = reuse.bounds(
            possible, len(tokens), memory=self.bench.model.memory, ubatch=self._ubatch()
        )
        row = RequestRow(
            step=name,
            route=self.route,
            lora=None if isinstance(lora, NoField) else dict(lora),
            setting=setting.as_dict(),
            slot_asked=slot,
            prompt_tokens=len(tokens),
            possible=possible,
            expected=(bounds.lower, bounds.upper) if bounds else None,
        )
        reply, log = self._exchange(row, prompt, Options(lora=self._field(lora), id_slot=slot))
        self._history.add((*tokens, *(t.id for t in reply.tokens[:-1])), setting)
        failures = list(violations(reply, prompt_tokens=len(tokens), id_slot=slot))
        answer = None
        if bounds is not None:
            failures += filter(None, [bounds.judge(reply.timings.cache_n)])
            answer, wrong = self._judge_answer(prompt, setting, reply)
            failures += wrong
        self._record(_with_reply(row, reply, answer), failures, log)
        return reply

    def set_server_wide(self, scales: Mapping[str, float]) -> None:
        """`POST /lora-adapters`: states the server-wide scale of every loaded adapter."""
        assert scales.keys() == self.adapters.keys(), "state every loaded adapter"
        try:
            self.server.client.set_lora_adapters(
                [(self._id(letter), scale) for letter, scale in scales.items()],
                timeout=self._left(),
            )
        except RequestError as error:
            raise self._fatal("POST /lora-adapters", error) from error
        self._server_wide = dict(scales)

    def signature(self) -> tuple[str, ...]:
        """The failed `step: kind` pairs, sorted."""
        return tuple(
            sorted({f"{s.row.step}: {kind}" for s in self.steps for kind, _ in s.row.failures})
        )

    def __enter__(self) -> Self:
        self._deadline = time.monotonic() + self.seconds
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
            reply = send(self.server.client, self.route, prompt, options, self._left())
            self.server.check_alive()
        except (RequestError, ServerExited) as error:
            failure = self._failure(error)
            self._record(row, [failure], log.since(start))
            raise _Ended from error
        return reply, log.request_slice(start)

    def _judge_answer(
        self, prompt: Prompt, setting: Setting, reply: Reply
    ) -> tuple[str | None, list[Failure]]:
        """How the answer was judged, and all that is wrong with it."""
        if not reply.tokens:
            wrong = Failure(Kind.ACCOUNTING, "the reply reports no token probabilities")
            return None, [wrong]
        by, texts = [], []
        oracle = self.bench.model.oracle
        if oracle is not None:
            by.append("cell")
            texts.append(wrong_cell(oracle, reply.tokens, setting.as_dict()))
        failures = []
        if self.compare_cold:
            try:
                tolerance = self.bench.tolerance(self._left())
                if tolerance.tells:
                    by.append(f"cold run, within {tolerance}")
                    cold = self.bench.cold(self.route, prompt, setting, self._left())
                    texts.append(_reused_cold(cold))
                    texts.append(unlike_cold(cold.tokens, reply.tokens, tolerance))
                else:
                    by.append(f"not by a cold run: noise is as large as a difference, {tolerance}")
                    texts.append(by[-1] if oracle is not None else None)
            except (RequestError, ServerError) as error:
                failure = _failure(error)
                failures.append(replace(failure, message=f"cold run: {failure.message}"))
        failures += [Failure(Kind.WRONG_ANSWER, text) for text in texts if text]
        return "; ".join(by) or None, failures

    def _failure(self, error: RequestError | ServerExited) -> Failure:
        """What a request that got no proper answer says about the server."""
        return _failure(self.server.cause(error) if isinstance(error, RequestError) else error)

    def _fatal(self, name: str, error: RequestError) -> _Ended:
        """Records that an auxiliary request failed; to be raised."""
        self._record(RequestRow(step=name, route=self.route), [self._failure(error)])
        return _Ended()

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
            self._record(RequestRow(step="end", route=self.route), [_failure(error)])

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

    def _ubatch(self) -> int:
        return self.config.ubatch_size or 512

    def _left(self) -> float:
        return max(0.1, self._deadline - time.monotonic())


def _failure(error: RequestError | ServerError) -> Failure:
    if isinstance(error, ServerError):
        return Failure(Kind.CRASH, error.message, error.detail)
    kind = Kind.HANG if isinstance(error, TimedOut) else Kind.REFUSED
    return Failure(kind, error.message, error.detail)


def _reused_cold(cold: Reply) -> str | None:
    reused = cold.timings.cache_n
    return f"the cold run itself reused {reused} tokens" if reused else None


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
