"""The ledger: one JSON object a line, the one source every report reads. Never prompt text.

Rows, told apart by `row`:

    run       first: schema, harness version, builds, model hashes, command line, versions
    request   one request of a scenario: sizes, adapters, reuse, what was expected, what was wrong
    verdict   one scenario on one build, with one model, in one configuration
    end       last: the exit code; without it the file is not whole
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import msgspec

from harness.cause import Cause
from harness.errors import UsageProblem

SCHEMA = 3
_WHERE = ("scenario", "configuration", "model", "build")
"""What tells verdicts apart."""


class Verdict(StrEnum):
    """What came of a scenario."""

    HOLDS = "holds"
    FAILED = "failed"
    KNOWN_BUG = "known bug"
    """Failed just as an entry of the known bugs says."""
    KNOWN_BUG_GONE = "known bug gone"
    """Holds, where an entry of the known bugs says it fails."""
    UNSUPPORTED = "unsupported"
    """The build lacks a flag the scenario needs."""
    NOT_TESTED = "not tested"
    """The user's own arguments or files are not what the scenario needs."""
    ERROR = "error"
    """No verdict on reuse: the server did not start, or the harness failed."""

    @property
    def reached(self) -> bool:
        """Whether something was found out about the build."""
        return self not in (Verdict.UNSUPPORTED, Verdict.NOT_TESTED, Verdict.ERROR)


class Call(StrEnum):
    """The routes of steps that are no request for an answer, where they change what is kept."""

    RESTART = "restart"
    SAVE = "save"
    RESTORE = "restore"


class Purpose(StrEnum):
    """What a request is for."""

    TURN = "turn"
    """The next words of a conversation."""
    PROBE = "probe"
    """A short request beside it: a health check, a title, a summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a step's reuse is what it is."""

    cause: Cause
    text: str
    """The numbers that show it."""

    def __str__(self) -> str:
        return f"{self.cause}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFileRow:
    """A slot file that was saved or restored."""

    tokens: int
    bytes: int
    ms: float

    @property
    def megabytes_a_second(self) -> float:
        """By the server's own clock."""
        return self.bytes / 1e3 / self.ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdRow:
    """How an answer compares with a cold run's, in nats."""

    limit: float
    """The tolerance."""
    noise: float | None = None
    """The most that right answers were apart on the control; None where it reused nothing."""
    signal: float | None = None
    """The least that another adapter setting or text made there; None where none was needed."""
    apart: float | None = None
    """The largest difference of first-token logprobs; None where noise hides what they say."""

    def __str__(self) -> str:
        if self.signal is None:
            return f"{self.limit:.1e}"
        noise = "unknown" if self.noise is None else f"{self.noise:.1e}"
        return (
            f"{self.limit:.1e} (control: noise {noise}, other adapters or text {self.signal:.1e})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One step: a request for an answer, or another call. Sizes in tokens."""

    step: str
    route: str
    lora: dict[str, float] | None = None
    """The `lora` field as sent, by adapter letter; None where the field was left out."""
    setting: dict[str, float] = field(default_factory=dict)
    """The adapters in force, field or not."""
    slot_asked: int | None = None
    cache_prompt: bool = True
    stream: bool = False
    purpose: str | None = None
    """Of a request for an answer: see `Purpose`."""
    conversation: str | None = None
    """The step that began it; None for what is no turn of one."""
    prompt_tokens: int = 0
    possible: int = 0
    """Tokens the rule allows to be reused."""
    states: tuple[str, ...] = ()
    """The steps that left the states this one is about: of a request those it should have found one
    of, the last one last; of a slot file the one in it."""
    shared: int = 0
    """Tokens of the prompt that they have, the last one of the prompt left out."""
    claim: str | None = None
    """What the step claims of its reuse."""
    expected: tuple[int, int] | None = None
    """Bounds of the reuse; None where the step is not judged."""
    slot: int | None = None
    chosen: str | None = None
    """How the slot was chosen; None where the log does not tell."""
    cache_n: int | None = None
    prompt_n: int | None = None
    predicted_n: int | None = None
    prompt_ms: float | None = None
    read_again: int = 0
    """Possible tokens that were not reused; more than what a failure counts, which was promised."""
    reason: Reason | None = None
    """Of a step that failed, or read tokens again, or was not to reuse a similar state."""
    file: SlotFileRow | None = None
    """What a step that saved or restored a slot file was told."""
    answer: str | None = None
    """How the answer was judged; None where it was not."""
    cold: ColdRow | None = None
    """The comparison with a cold run, where there was one."""
    note: str = ""
    """What else there is to know of a step."""
    failures: tuple[tuple[str, str], ...] = ()
    """(kind, what was wrong)."""

    @property
    def reuse(self) -> str:
        """`cache_n/prompt_n`, as tables show it."""
        return f"{self.cache_n}/{self.prompt_n}" if self.cache_n is not None else "-/-"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """What came of one scenario on one build, with one model, in one configuration."""

    scenario: str
    configuration: str
    model: str
    build: str
    verdict: Verdict
    signature: tuple[str, ...]
    """The failed `step: kind` pairs, sorted."""
    issue: str | None
    """The upstream issue of the known bug it shows, or on other builds showed in just this way."""
    bug: str | None
    """What that bug is, in one sentence."""
    reason: str | None
    """Why a scenario was not tested, or could not be."""
    argv: tuple[str, ...]
    seconds: float
    requests: tuple[RequestRow, ...] = field(default=())
    start_as: tuple[str, ...] = field(default=())
    """The command line of a server it can be tested on, where the one attached to is none."""

    @property
    def reuses(self) -> list[str]:
        """`cache_n/prompt_n` of each request for an answer."""
        return [request.reuse for request in self.requests if request.prompt_tokens]

    @property
    def why(self) -> Reason | None:
        """Why the first step failed that did; None where none did, or nobody knows."""
        return next((request.reason for request in self.requests if request.failures), None)

    def to_json(self) -> dict[str, Any]:
        """Plain data, requests included, to be handed to another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_json`. Raises `msgspec.ValidationError` for what is no such row."""
        return msgspec.convert(data, cls)


@dataclass(frozen=True, slots=True)
class Run:
    """A ledger that was read."""

    facts: dict[str, Any]
    """The first row."""
    verdicts: tuple[VerdictRow, ...]
    lost: tuple[str, ...] = ()
    """Tests that failed without a verdict, and why: their worker was killed, say."""
    exit_code: int = 0
    """Of pytest."""


def read(path: Path) -> Run:
    """What a ledger says. Raises `UsageProblem` for a file that is none, or not whole."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise UsageProblem(
            f"{path} cannot be read: {error.strerror}", hint="name a file of --llama-report"
        ) from None
    first = _row(lines[0]) if lines else {}
    if first.get("row") != "run":
        raise UsageProblem(f"{path} is not a ledger", hint="pytest --llama-report=PATH writes one")
    if first.get("schema") != SCHEMA:
        raise UsageProblem(
            f"{path} is a ledger of schema {first.get('schema')}, not {SCHEMA}",
            hint="another version wrote it: run the suite again",
        )
    last = _row(lines[-1])
    if last.get("row") != "end":
        raise UsageProblem(f"{path} is not whole", hint="its run was broken off")
    try:
        verdicts = tuple(_verdicts(_row(line) for line in lines[1:-1]))
        lost = msgspec.convert(last.get("lost", ()), tuple[str, ...])
        return Run(first, verdicts, lost, msgspec.convert(last.get("exit_code", 0), int))
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageProblem(f"{path} is damaged: {error}", hint="run the suite again") from None


def _row(line: str) -> dict[str, Any]:
    """A line's data; nothing where it is no row."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _verdicts(rows: Iterable[dict[str, Any]]) -> Iterator[VerdictRow]:
    """Each verdict with the requests that stand before it."""
    requests: list[dict[str, Any]] = []
    for row in rows:
        kind = row.get("row")
        if kind == "request":
            requests.append(row)
        elif kind == "verdict":
            yield VerdictRow.from_json({**row, "requests": requests})
            requests = []
        else:
            raise ValueError(f"a row of kind {kind!r} among those of scenarios")
    if requests:
        raise ValueError("requests without a verdict")


class Ledger:
    """A ledger file being written; every row is on disk when the call returns.

    Raises OSError when it cannot be.
    """

    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        self.path = path
        # A pipe nobody reads is an error rather than a wait; and unbuffered, since after a full
        # disk nothing must be left to be written when the file is closed.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o666)
        os.set_blocking(descriptor, True)
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        try:
            self._write({"row": "run", "schema": SCHEMA, "time": _now(), **run})
        except OSError:
            self.close()
            raise

    def add(self, verdict: VerdictRow) -> None:
        """The rows of one scenario: its requests, then the verdict."""
        where = {key: getattr(verdict, key) for key in _WHERE}
        for number, request in enumerate(verdict.requests, 1):
            self._write({"row": "request", **where, "number": number, **asdict(request)})
        row = verdict.to_json()
        del row["requests"]
        self._write({"row": "verdict", **row})

    def end(self, exit_code: int, *, lost: Sequence[str] = ()) -> None:
        """The last row. Tests that failed without a verdict are named there."""
        self._write({"row": "end", "exit_code": exit_code, "lost": [*lost], "time": _now()})

    def close(self) -> None:
        """Nothing more is added."""
        self._file.close()

    def _write(self, row: dict[str, Any]) -> None:
        line = json.dumps(row).encode() + b"\n"
        while line:
            line = line[self._file.write(line) :]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
