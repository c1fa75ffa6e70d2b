"""What llama-server answers, as typed data; `Malformed` where it does not keep to its API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import Malformed


@dataclass(frozen=True, slots=True)
class Timings:
    """The `timings` object of a reply: how many tokens were reused, read and generated."""

    cache_n: int
    prompt_n: int
    predicted_n: int
    prompt_ms: float
    predicted_ms: float


@dataclass(frozen=True, slots=True)
class TokenProbs:
    """One generated token: its id, and the most probable ids there with their logprobs."""

    id: int
    top: tuple[tuple[int, float], ...]

    @property
    def gap(self) -> float:
        """Difference of the two best logprobs, in nats; how surely the first one wins."""
        return self.top[0][1] - self.top[1][1] if len(self.top) > 1 else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What every generating route gives."""

    text: str
    prompt_tokens: int
    """Length of the whole prompt in tokens, as the server counts it."""
    timings: Timings
    tokens: tuple[TokenProbs, ...]
    """The generated tokens; empty unless `n_probs` was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionReply(Reply):
    """A reply of `/completion`."""

    id_slot: int
    tokens_cached: int
    """Tokens the slot holds afterwards (not reuse)."""
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIReply(Reply):
    """A reply of `/v1/completions` or `/v1/chat/completions`."""

    completion_tokens: int
    cached_tokens: int
    """`usage.prompt_tokens_details.cached_tokens`."""
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Props:
    """The part of `/props` the harness reads."""

    model_alias: str
    model_path: str
    build_info: str
    total_slots: int
    chat_template: str


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry of `/slots`."""

    id: int
    n_ctx: int
    """How many tokens it has room for."""
    is_processing: bool
    n_prompt_tokens: int | None
    """What it holds when it is idle; None where unknown."""
    used: bool
    """Whether it ever had a request; what is restored into it from a file does not count."""


@dataclass(frozen=True, slots=True)
class SlotFile:
    """The reply to a slot's save or restore: tokens, bytes of the file, milliseconds."""

    id_slot: int
    n_tokens: int
    n_bytes: int
    ms: float


@dataclass(frozen=True, slots=True)
class AdapterScale:
    """One entry of `/lora-adapters`: a loaded adapter and its server-wide scale."""

    id: int
    path: str
    scale: float


class Fields:
    """A JSON object read with checks: a missing or mistyped field is `Malformed`, with its path."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, Mapping):
            raise Malformed(f"{where} is not a JSON object: {_short(data)}")
        self._data: Mapping[str, Any] = data
        self._where = where

    def object(self, name: str) -> Fields:
        """The object under `name`."""
        return Fields(self._get(name), f"{self._where}.{name}")

    def list(self, name: str) -> Sequence[Any]:
        """The array under `name`."""
        value = self._get(name)
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise Malformed(f"{self._where}.{name} is not an array: {_short(value)}")
        return value

    def objects(self, name: str) -> Sequence[Fields]:
        """The array of objects under `name`."""
        where = f"{self._where}.{name}"
        return [Fields(item, f"{where}[{i}]") for i, item in enumerate(self.list(name))]

    def optional(self, name: str) -> Any:
        """Whatever is under `name`; None when it is missing."""
        return self._data.get(name)

    def integer(self, name: str) -> int:
        """The whole number under `name`."""
        value = self._get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Malformed(f"{self._where}.{name} is not a whole number: {_short(value)}")
        return value

    def number(self, name: str) -> float:
        """The number under `name`."""
        value = self._get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Malformed(f"{self._where}.{name} is not a number: {_short(value)}")
        return float(value)

    def text(self, name: str) -> str:
        """The string under `name`."""
        value = self._get(name)
        if not isinstance(value, str):
            raise Malformed(f"{self._where}.{name} is not a string: {_short(value)}")
        return value

    def flag(self, name: str) -> bool:
        """The boolean under `name`."""
        value = self._get(name)
        if not isinstance(value, bool):
            raise Malformed(f"{self._where}.{name} is not a boolean: {_short(value)}")
        return value

    def _get(self, name: str) -> Any:
        if name not in self._data:
            raise Malformed(f"{self._where} has no field {name!r}")
        return self._data[name]


def _short(value: object) -> str:
    """What kind of thing came: never the thing itself, which may hold prompt text."""
    return type(value).__name__


def timings(reply: Fields) -> Timings:
    """The `timings` of a reply."""
    data = reply.object("timings")
    return Timings(
        cache_n=data.integer("cache_n"),
        prompt_n=data.integer("prompt_n"),
        predicted_n=data.integer("predicted_n"),
        prompt_ms=data.number("prompt_ms"),
        predicted_ms=data.number("predicted_ms"),
    )


def token_probs(items: Sequence[Fields]) -> tuple[TokenProbs, ...]:
    """The per-token probabilities: the same objects on every route."""
    return tuple(
        TokenProbs(
            id=item.integer("id"),
            top=tuple(
                (top.integer("id"), top.number("logprob")) for top in item.objects("top_logprobs")
            ),
        )
        for item in items
    )


def completion(final: Fields, text: str, tokens: Sequence[Fields]) -> CompletionReply:
    """A `/completion` reply; `final` is the last event of a stream, or the whole answer."""
    return CompletionReply(
        text=text,
        prompt_tokens=final.integer("tokens_evaluated"),
        timings=timings(final),
        tokens=token_probs(tokens),
        id_slot=final.integer("id_slot"),
        tokens_cached=final.integer("tokens_cached"),
        truncated=final.flag("truncated"),
    )


def openai(final: Fields, text: str, tokens: Sequence[Fields], finish_reason: str) -> OpenAIReply:
    """An OpenAI-style reply; `final` is the event with `usage`, or the whole answer."""
    usage = final.object("usage")
    return OpenAIReply(
        text=text,
        prompt_tokens=usage.integer("prompt_tokens"),
        timings=timings(final),
        tokens=token_probs(tokens),
        completion_tokens=usage.integer("completion_tokens"),
        cached_tokens=usage.object("prompt_tokens_details").integer("cached_tokens"),
        finish_reason=finish_reason,
    )
