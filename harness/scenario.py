"""One scenario: a fresh server, a sequence of requests, and everything that was wrong with them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar, Unpack

from harness.accounting import (
    LATER_METRICS,
    metrics_violations,
    restored_violations,
    slot_file_violations,
    violations,
)
from harness.client import Client, Options
from harness.conversation import Conversations
from harness.errors import (
    HarnessError,
    NotTestable,
    ReferenceTrouble,
    Refused,
    RequestError,
    ServerError,
)
from harness.expect import Claim, Failure, Kind, Reuse
from harness.history import NOTHING, History, Share, State, common_prefix
from harness.judge import Asked, Judge
from harness.ledger import Call, Purpose, RequestRow
from harness.loaded import NO_FIELD, Loaded, Lora, NoField
from harness.memory import Checkpoints
from harness.prompts import Prompt, Route
from harness.reference import send
from harness.replies import CompletionReply, Reply, SlotFile, Timings
from harness.rows import with_file, with_refusal, with_reply
from harness.server.config import ConfigFields
from harness.server.log import LogSlice
from harness.setting import Setting
from harness.stage import Stage
from harness.stopwatch import Stopwatch

T = TypeVar("T")

_OTHER = "%"
"""What no user's message begins with."""
_ROOM = 64 * 1024 * 1024
"""Bytes on a disk with less than which a slot file may not be written."""


@dataclass(frozen=True, slots=True)
class _SavedSlot:
    """What a scenario knows of a slot file."""

    state: State
    """What the last request had left in the slot."""
    reply: SlotFile


@dataclass(slots=True, kw_only=True, repr=False)
class Scenario(Stage):
    """Asks the server of one scenario, and judges what it answers.

    Cold runs may take `seconds` besides.
    """

    adapters: Mapping[str, float]
    """The adapters loaded, and their server-wide scales from the start."""
    route: Route
    compare_cold: bool = True
    """False where a cold run would cost too much: answers are then judged by their cell alone."""
    _loaded: Loaded = field(init=False)
    _history: History = field(init=False)
    _replies: list[Timings] = field(default_factory=list)
    """Of the running server."""
    _saved: dict[str, _SavedSlot] = field(default_factory=dict)
    _conversations: Conversations = field(default_factory=Conversations)
    _judge: Judge = field(init=False)

    def __post_init__(self) -> None:
        Stage.__post_init__(self)  # a dataclass with slots has no super()
        self._loaded = Loaded(self.adapters, self.bench.model.oracle)
        self._judge = Judge(self.bench, self.compare_cold, Stopwatch(self.seconds))

    def ask(
        self,
        name: str,
        prompt: Prompt,
        *,
        lora: Lora = NO_FIELD,
        reuse: Claim = Claim.ALLOWED,
        slot: int | None = None,
        cache_prompt: bool = True,
        stream: bool = False,
        n_predict: int = Options().n_predict,
        purpose: Purpose = Purpose.TURN,
    ) -> Reply:
        """Sends one request and judges its reuse, its answer and its numbers.

        `name` is unique in the scenario. An explicit `lora` states every loaded adapter.
        """
        self._check_name(name)
        assert isinstance(reuse, Claim), "a step states a claim, never a number"
        assert cache_prompt or reuse is not Claim.PROMISED, "what is not to be cached is not reused"
        setting = self._loaded.setting(lora)
        tokens = self._tokens(RequestRow(step=name, route=self.route), prompt)
        options = Options(
            lora=self._loaded.field(lora),
            id_slot=slot,
            cache_prompt=cache_prompt,
            n_predict=n_predict,
        )
        bounds, possible, promised = self._bounds(reuse, tokens, setting, options)
        row = RequestRow(
            step=name,
            route=self.route,
            lora=None if isinstance(lora, NoField) else dict(lora),
            setting=setting.as_dict(),
            slot_asked=slot,
            cache_prompt=cache_prompt,
            stream=stream,
            purpose=purpose.value,
            conversation=self._conversations.of(name, tokens) if purpose is Purpose.TURN else None,
            prompt_tokens=len(tokens),
            possible=possible.tokens,
            claim=reuse.value,
            expected=(bounds.lower, bounds.upper) if bounds else None,
        )
        asked = Asked(
            route=self.route,
            prompt=prompt,
            setting=setting,
            options=options,
            prompt_tokens=len(tokens),
        )
        checkpoints = self._checkpoints(prompt, tokens)
        reply, log = self._exchange(row, asked, stream=stream)
        generated = tuple(token.id for token in reply.tokens[:-1])
        if checkpoints is not None:
            checkpoints = replace(checkpoints, read_from=reply.timings.cache_n)
        short = bounds is not None and reply.timings.cache_n < bounds.lower
        found = promised if short else possible
        row = replace(row, states=found.steps, shared=found.shared)
        state = State((*tokens, *generated), setting, checkpoints, name)
        self._history.record(state, reply.id_slot if isinstance(reply, CompletionReply) else slot)
        self._judge_reply(row, asked, bounds, reply, log)
        return reply

    def act(
        self,
        name: str,
        call: Callable[[Client, float], T],
        *,
        route: str = "",
        task: bool = False,
    ) -> T:
        """Does something else with the server, as a step of its own.

        `call` gets the client and the seconds left. A refusal or a crash is the step's failure. The
        scenario does not learn of states and answers: no request for tokens, and without a prompt
        cache nothing that uses a slot. `route` is what the ledger calls it; `task` says that it
        takes a slot, as a request does, which reasons need to know.
        """
        row, start = self._new_row(name, route), self.server.log.position()
        done, log = self._call(row, call)
        if task:  # whose log ends like that of a request
            log = self.server.log.request_slice(start)
        self._record(row, [], log)
        return done

    def refused(
        self,
        name: str,
        call: Callable[[Client, float], object],
        *,
        route: str = "",
        slot: int | None = None,
    ) -> None:
        """Does something that is to be answered with an HTTP error, and not to end the server.

        `route` is what the ledger calls it. Reasons need to know of a slot file that is refused
        (`Call.RESTORE`), and into which slot it was to come.
        """
        row = replace(self._new_row(name, route), slot_asked=slot)
        done, log = self._call_refusable(row, call)
        if isinstance(done, Refused):
            self._record(with_refusal(row, done), [], log)
        else:
            self._record(row, [Failure(Kind.ACCEPTED, "an HTTP error was due")], log)

    def set_server_wide(self, scales: Mapping[str, float]) -> None:
        """`POST /lora-adapters`: states the server-wide scale of every loaded adapter."""
        self._loaded.check_whole(scales)
        field = self._loaded.field(scales) or []
        row = replace(
            self._new_row(f"POST /lora-adapters {len(self.steps)}", "/lora-adapters"),
            lora=dict(scales),
            setting=Setting.of(scales).as_dict(),
        )
        _, log = self._call(
            row, lambda client, seconds: client.set_lora_adapters(field, timeout=seconds)
        )
        self._record(row, [], log)
        self._loaded.set_server_wide(scales)

    def check_metrics(self, name: str) -> None:
        """Compares the counters of `/metrics` with all replies since the server started."""
        row = self._new_row(name, "/metrics")
        metrics, log = self._call(row, lambda client, seconds: client.metrics(timeout=seconds))
        absent = ", ".join(sorted(LATER_METRICS - metrics.keys()))
        row = replace(row, note=f"this build does not count {absent}" if absent else "")
        self._record(row, metrics_violations(metrics, self._replies), log)

    def save(self, name: str, *, slot: int, file: str) -> bool:
        """Saves what the last request left in a slot. Whether it was accepted.

        Only where nothing was ever left there it may be refused.
        """
        path, held = self.slot_file(file), self._history.in_slot(slot)
        state = held or NOTHING
        row = replace(
            self._new_row(name, Call.SAVE),
            slot_asked=slot,
            states=(state.step,) if state.step else (),
            note=f"left with {len(state.tokens)} tokens",
        )
        saved, log = self._call_refusable(
            row, lambda client, seconds: client.save_slot(slot, file, timeout=seconds)
        )
        if isinstance(saved, Refused):
            _check_room(path.parent)
            if held is not None:
                self._end(row, saved, log)
            self._record(with_refusal(row, saved), [], log)
            return False
        self._saved[file] = _SavedSlot(state, saved)
        failures = slot_file_violations(
            saved,
            id_slot=slot,
            held=len(state.tokens),
            file_bytes=path.stat().st_size if path.exists() else 0,
        )
        self._record(with_file(row, saved), failures, log)
        return True

    def restore(self, name: str, *, slot: int, file: str, damaged_at: int | None = None) -> bool:
        """Restores what was saved. Whether it was accepted, which it must be if it is whole.

        A file that was changed since it was saved, or has nothing in it, may be refused. The tokens
        before `damaged_at` (an index; -1 is the last one) are still what they were.
        """
        assert file in self._saved, f"{file} was not saved here: s.refused(...) is for others"
        known = self._saved[file]
        row = replace(
            self._new_row(name, Call.RESTORE),
            slot_asked=slot,
            states=(known.state.step,) if known.state.step else (),
        )
        whole = damaged_at is None and known.state.tokens
        call = self._call if whole else self._call_refusable
        restored, log = call(
            row, lambda client, seconds: client.restore_slot(slot, file, timeout=seconds)
        )
        if isinstance(restored, Refused):
            self._record(with_refusal(row, restored), [], log)
            return False
        intact = known.state.tokens[:damaged_at]
        self._history.record(replace(known.state, tokens=intact), slot)
        saved = known.reply if damaged_at is None else None
        failures = restored_violations(restored, id_slot=slot, saved=saved)
        self._record(with_file(row, restored), failures, log)
        return True

    def save_elsewhere(
        self,
        prompt: Prompt,
        file: str,
        *,
        model: Path | None = None,
        **changes: Unpack[ConfigFields],
    ) -> None:
        """Saves a slot file of another server: of another model, or with other values for fields.

        That server is not under test: trouble with it is `ReferenceTrouble`, no verdict.
        """
        assert self.route is Route.COMPLETION, "a file is the same file on every route"
        config = self.bench.changed(self.config, **changes)
        if model is not None:
            config = replace(config, model=model, adapters=())
        watch = Stopwatch(self.seconds)
        try:
            with watch, self.bench.server(config, self.directory / "elsewhere.log") as server:
                server.client.completion(prompt.text, Options(id_slot=0), timeout=watch.left)
                server.client.save_slot(0, file, timeout=watch.left)
        except (RequestError, ServerError) as error:
            raise ReferenceTrouble(
                f"no slot file of another server: {error.message}", detail=error.detail
            ) from error

    def slot_file(self, file: str) -> Path:
        """Where a slot file is."""
        assert self.config.slot_save_path is not None, "start it with slot_save_path=..."
        return self.config.slot_save_path / file

    def require(self, condition: bool, what: str) -> None:
        """Ends the test without a verdict where a scenario is not what it says it is.

        With a user's model and arguments that is nobody's fault: `NotTestable`.
        """
        if condition:
            return
        theirs = self.bench.extra_args or self.bench.attached
        ours = self.bench.model.oracle is not None and not theirs
        assert not ours, f"this scenario needs {what}"
        raise NotTestable(f"needs {what}")

    def tokens(self, prompt: Prompt) -> tuple[int, ...]:
        """A prompt in the tokens of this server, on the route of this scenario."""
        return self._tokens(RequestRow(step="tokenize", route="/tokenize"), prompt)

    def _start(self) -> None:
        self._loaded.restart()
        self._replies.clear()
        Stage._start(self)
        slots, prompt_cache = self.server.props.total_slots, self.config.cache_ram != 0
        self._history = History(slots=slots, prompt_cache=prompt_cache)

    def _tokens(self, row: RequestRow, prompt: Prompt) -> tuple[int, ...]:
        """A prompt in tokens; `row` is what is recorded where they cannot be had."""
        tokens, _ = self._call(
            row,
            lambda client, seconds: self.bench.tokens(client, self.route, prompt, seconds),
        )
        return tokens

    def _bounds(
        self, reuse: Claim, tokens: Sequence[int], setting: Setting, options: Options
    ) -> tuple[Reuse | None, Share, Share]:
        """The bounds that a claim means here, and what may and what must be reused."""
        assert reuse is not Claim.PROMISED or self._history.certain, (
            "nothing can be promised of a state that may have been overwritten: state the slots"
        )
        possible = self._history.possible(tokens, setting)
        promised = self._history.promised(
            tokens,
            setting,
            slot=options.id_slot,
            memory=self.bench.model.memory,
            ubatch=self.bench.ubatch(self.config),
        )
        if not options.cache_prompt:
            possible, promised = replace(possible, tokens=0), Share()
        bounds = reuse.bounds(promised=promised.tokens, possible=possible.tokens)
        return bounds, possible, promised

    def _checkpoints(self, prompt: Prompt, tokens: Sequence[int]) -> Checkpoints | None:
        """Where a state of this prompt surely can be resumed, of memory that cannot rewind.

        With `checkpoint_min_step=0` every message of a user has a checkpoint, and all of them stay;
        without only the last one. A message begins with what the user says; its header is a few
        tokens before.
        """
        if self.bench.model.memory.rewinds or self.bench.says("--ctx-checkpoints"):
            return None
        every = self.config.checkpoint_min_step == 0
        turns = range(0 if every else len(prompt.turns) - 1, len(prompt.turns), 2)
        chat = self.route is Route.CHAT
        others = (self.tokens(prompt.with_turn(turn, _OTHER)) for turn in (turns if chat else ()))
        starts = tuple(common_prefix(tokens, other) for other in others)
        return Checkpoints(prompt_tokens=len(tokens), message_starts=starts, kept=every)

    def _judge_reply(
        self, row: RequestRow, asked: Asked, bounds: Reuse | None, reply: Reply, log: LogSlice
    ) -> None:
        """Records a request, with all that is wrong with its reply."""
        failures = list(
            violations(
                reply,
                prompt_tokens=asked.prompt_tokens,
                n_predict=asked.options.n_predict,
                id_slot=asked.options.id_slot,
            )
        )
        judgement = None
        try:
            if bounds is not None:
                failures += filter(None, [bounds.judge(reply.timings.cache_n)])
                judgement = self._judge.answer(asked, reply, self.config)
                failures += judgement.wrong
        finally:
            self._record(with_reply(row, reply, judgement), failures, log)

    def _exchange(self, row: RequestRow, asked: Asked, *, stream: bool) -> tuple[Reply, LogSlice]:
        start = self.server.log.position()
        reply, _ = self._call(
            row,
            lambda client, seconds: send(
                client, asked.route, asked.prompt, asked.options, seconds, stream=stream
            ),
        )
        self._replies.append(reply.timings)
        return reply, self.server.log.request_slice(start)


def _check_room(directory: Path) -> None:
    """Raises `HarnessError` where it is the disk's fault that a slot file was not written."""
    if shutil.disk_usage(directory).free < _ROOM:
        raise HarnessError(
            f"there is no room for slot files in {directory}",
            hint="pytest's --basetemp=DIR puts them elsewhere",
        )
