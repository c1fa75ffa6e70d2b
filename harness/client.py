"""llama-server's HTTP API, typed. Hermetic: no proxy, no .netrc, one connection a request."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import requests
from prometheus_client.parser import text_string_to_metric_families

from harness import replies
from harness.errors import Disconnected, Malformed, Refused, RequestError, TimedOut
from harness.replies import (
    AdapterScale,
    CompletionReply,
    Fields,
    OpenAIReply,
    Props,
    Slot,
    SlotFile,
)

Message = Mapping[str, str]
"""A chat message: `role` and `content`."""

LoraField = Sequence[tuple[int, float]]
"""The `lora` field of a request: (adapter id, scale) pairs."""

DEFAULT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a generating request says beside its prompt. Greedy, and never ended by EOS."""

    n_predict: int = 4
    lora: LoraField | None = None
    """None leaves the field out; an empty sequence sends `[]`."""
    id_slot: int | None = None
    cache_prompt: bool = True
    n_probs: int = 10
    """Most probable tokens reported for each generated one."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The fields that are the same on every route."""
        body: dict[str, Any] = {
            "temperature": 0,
            "seed": 1,
            "ignore_eos": True,
            "cache_prompt": self.cache_prompt,
        }
        if self.lora is not None:
            body["lora"] = [{"id": id, "scale": scale} for id, scale in self.lora]
        if self.id_slot is not None:
            body["id_slot"] = self.id_slot
        return {**body, **self.extra}


class Client:
    """Talks to one server. Every call takes the seconds it may wait.

    Raises `Refused` with the server's own message for an HTTP error, `TimedOut`, `Disconnected`,
    or `Malformed`.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._session = requests.Session()
        # A proxy or .netrc of the user's must not come between us and loopback.
        self._session.trust_env = False
        self._session.headers["Connection"] = "close"

    def close(self) -> None:
        """Gives up its connections."""
        self._session.close()

    def completion(
        self,
        prompt: str | Sequence[int],
        options: Options = Options(),
        *,
        stream: bool = False,
        timeout: float = DEFAULT_SECONDS,
    ) -> CompletionReply:
        """`POST /completion`."""
        body = {
            **options.body(),
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "n_predict": options.n_predict,
            "n_probs": options.n_probs,
            "stream": stream,
        }
        if stream:
            return _completion_stream(list(self._events("/completion", body, timeout)))
        final = Fields(self._json("POST", "/completion", body, timeout), "/completion")
        probs = final.objects("completion_probabilities") if options.n_probs else ()
        return replies.completion(final, final.text("content"), probs)

    def completions(
        self,
        prompt: str,
        options: Options = Options(),
        *,
        stream: bool = False,
        timeout: float = DEFAULT_SECONDS,
    ) -> OpenAIReply:
        """`POST /v1/completions`."""
        body = {**options.body(), "prompt": prompt, "max_tokens": options.n_predict}
        if options.n_probs:
            body["logprobs"] = options.n_probs
        return self._openai("/v1/completions", body, stream, timeout)

    def chat(
        self,
        messages: Sequence[Message],
        options: Options = Options(),
        *,
        stream: bool = False,
        timeout: float = DEFAULT_SECONDS,
    ) -> OpenAIReply:
        """`POST /v1/chat/completions`."""
        body = {**options.body(), "messages": list(messages), "max_tokens": options.n_predict}
        if options.n_probs:
            body |= {"logprobs": True, "top_logprobs": options.n_probs}
        return self._openai("/v1/chat/completions", body, stream, timeout)

    def embedding(self, text: str, *, timeout: float = DEFAULT_SECONDS) -> None:
        """`POST /embedding`, for what it does to the server: the numbers are not read."""
        self._json("POST", "/embedding", {"content": text}, timeout)

    def tokenize(
        self, text: str, *, special: bool = True, timeout: float = DEFAULT_SECONDS
    ) -> tuple[int, ...]:
        """Token ids of a prompt, as a request would have them: BOS added, specials parsed."""
        body = {"content": text, "add_special": special, "parse_special": True}
        data = Fields(self._json("POST", "/tokenize", body, timeout), "/tokenize")
        return tuple(data.list("tokens"))

    def apply_template(
        self, messages: Sequence[Message], *, timeout: float = DEFAULT_SECONDS
    ) -> str:
        """The prompt text that the server makes of a conversation."""
        body = {"messages": list(messages)}
        data = self._json("POST", "/apply-template", body, timeout)
        return Fields(data, "/apply-template").text("prompt")

    def health(self, *, timeout: float = DEFAULT_SECONDS) -> None:
        """Returns when the server says it is ready; `Refused` (503) while it loads its model."""
        status = Fields(self._json("GET", "/health", None, timeout), "/health").text("status")
        if status != "ok":
            raise Malformed(f"/health says {status!r}")

    def props(self, *, timeout: float = DEFAULT_SECONDS) -> Props:
        """`GET /props`."""
        data = Fields(self._json("GET", "/props", None, timeout), "/props")
        return Props(
            model_alias=data.text("model_alias"),
            model_path=data.text("model_path"),
            build_info=data.text("build_info"),
            total_slots=data.integer("total_slots"),
            chat_template=data.text("chat_template"),
        )

    def models(self, *, timeout: float = DEFAULT_SECONDS) -> tuple[str, ...]:
        """The ids in `GET /v1/models`."""
        data = Fields(self._json("GET", "/v1/models", None, timeout), "/v1/models")
        return tuple(model.text("id") for model in data.objects("data"))

    def slots(self, *, timeout: float = DEFAULT_SECONDS) -> tuple[Slot, ...]:
        """`GET /slots`."""
        data = Fields({"slots": self._json("GET", "/slots", None, timeout)}, "/slots")
        return tuple(
            Slot(
                id=slot.integer("id"),
                n_ctx=slot.integer("n_ctx"),
                is_processing=slot.flag("is_processing"),
                n_prompt_tokens=slot.optional("n_prompt_tokens"),
                used=slot.optional("id_task") not in (None, -1),
            )
            for slot in data.objects("slots")
        )

    def save_slot(
        self, id_slot: int, filename: str, *, timeout: float = DEFAULT_SECONDS
    ) -> SlotFile:
        """Writes a slot's state to a file below `--slot-save-path`."""
        data = self._slot_action(id_slot, "save", {"filename": filename}, timeout)
        return SlotFile(
            id_slot=data.integer("id_slot"),
            n_tokens=data.integer("n_saved"),
            n_bytes=data.integer("n_written"),
            ms=data.object("timings").number("save_ms"),
        )

    def restore_slot(
        self, id_slot: int, filename: str, *, timeout: float = DEFAULT_SECONDS
    ) -> SlotFile:
        """Reads a slot's state back from a file below `--slot-save-path`."""
        data = self._slot_action(id_slot, "restore", {"filename": filename}, timeout)
        return SlotFile(
            id_slot=data.integer("id_slot"),
            n_tokens=data.integer("n_restored"),
            n_bytes=data.integer("n_read"),
            ms=data.object("timings").number("restore_ms"),
        )

    def erase_slot(self, id_slot: int, *, timeout: float = DEFAULT_SECONDS) -> int:
        """Empties a slot; the number of tokens it held."""
        return self._slot_action(id_slot, "erase", {}, timeout).integer("n_erased")

    def lora_adapters(self, *, timeout: float = DEFAULT_SECONDS) -> tuple[AdapterScale, ...]:
        """`GET /lora-adapters`: what is loaded, with the server-wide scales."""
        path = "/lora-adapters"
        data = Fields({"adapters": self._json("GET", path, None, timeout)}, path)
        return tuple(
            AdapterScale(id=a.integer("id"), path=a.text("path"), scale=a.number("scale"))
            for a in data.objects("adapters")
        )

    def set_lora_adapters(self, scales: LoraField, *, timeout: float = DEFAULT_SECONDS) -> None:
        """`POST /lora-adapters`: sets the server-wide scales; unlisted adapters get 0."""
        body = [{"id": id, "scale": scale} for id, scale in scales]
        data = self._json("POST", "/lora-adapters", body, timeout)
        if not Fields(data, "/lora-adapters").flag("success"):
            raise Malformed("POST /lora-adapters did not answer with success")

    def metrics(self, *, timeout: float = DEFAULT_SECONDS) -> dict[str, float]:
        """`GET /metrics`, by name without the `llamacpp:` prefix."""
        with self._request("GET", "/metrics", None, timeout) as response:
            text = response.text
        return {
            sample.name.removeprefix("llamacpp:"): float(sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def _openai(self, path: str, body: dict[str, Any], stream: bool, timeout: float) -> OpenAIReply:
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
            return _openai_stream(list(self._events(path, body, timeout)), path)
        final = Fields(self._json("POST", path, body, timeout), path)
        choice = final.objects("choices")[0]
        text = choice.text("text") if path == "/v1/completions" else _content(choice, "message")
        return replies.openai(final, text, _logprobs(choice), choice.text("finish_reason"))

    def _slot_action(
        self, id_slot: int, action: str, body: dict[str, Any], timeout: float
    ) -> Fields:
        path = f"/slots/{id_slot}?action={action}"
        return Fields(self._json("POST", path, body, timeout), path)

    def _json(self, method: str, path: str, body: object, timeout: float) -> object:
        with self._request(method, path, body, timeout) as response:
            return _decoded(response.content, f"{method} {path}")

    def _events(self, path: str, body: object, timeout: float) -> Iterator[Fields]:
        """The events of a stream, as they come; the whole must end within `timeout`."""
        deadline = time.monotonic() + timeout
        request = f"POST {path} (stream)"
        with self._request("POST", path, body, timeout, stream=True) as response:
            try:
                for line in response.iter_lines():
                    if time.monotonic() > deadline:
                        raise TimedOut(f"{request} did not end within {timeout:.1f} s")
                    if line.startswith(b"data: ") and line != b"data: [DONE]":
                        yield _event(line[len(b"data: ") :], request)
                    elif line.startswith(b"error: "):
                        raise _refusal(200, line[len(b"error: ") :], request)
            except requests.RequestException as error:
                raise _transport_error(error, request, timeout) from error

    def _request(
        self, method: str, path: str, body: object, timeout: float, *, stream: bool = False
    ) -> requests.Response:
        request = f"{method} {path}"
        # A connection that was kept all the same, since the reply did not say "close" too, may be
        # closed by the server just now: that would look like a crash.
        self._session.close()
        try:
            response = self._session.request(
                method, self.url + path, json=body, timeout=max(timeout, 0.001), stream=stream
            )
        except requests.RequestException as error:
            raise _transport_error(error, request, timeout) from error
        if response.status_code >= 400:
            with response:
                raise _refusal(response.status_code, response.content, request)
        return response


def _decoded(content: bytes, request: str) -> object:
    try:
        return json.loads(content)
    except ValueError:
        raise Malformed(f"{request} did not answer with JSON ({len(content)} bytes)") from None


def _event(content: bytes, request: str) -> Fields:
    event = Fields(_decoded(content, request), request)
    if event.optional("error") is not None:
        raise _refusal(200, content, request)
    return event


def _refusal(status: int, content: bytes, request: str) -> Refused:
    """The server's own words: `{"error": {"message": ...}}`, or the raw body."""
    try:
        message = Fields(json.loads(content), request).object("error").text("message")
    except (ValueError, Malformed):
        message = content[:500].decode("utf-8", errors="replace") or "no message"
    return Refused(status, message, request=request)


def _transport_error(
    error: requests.RequestException, request: str, timeout: float
) -> RequestError:
    # A read that times out inside a stream comes as ConnectionError around urllib3's timeout.
    if isinstance(error, requests.Timeout) or "Read timed out" in str(error):
        return TimedOut(f"{request} did not answer within {timeout:.1f} s")
    return Disconnected(f"{request}: the connection failed ({type(error).__name__})")


def _completion_stream(events: Sequence[Fields]) -> CompletionReply:
    if not events:
        raise Malformed("/completion (stream) sent no event")
    text = "".join(event.text("content") for event in events)
    probs = [
        item
        for event in events
        if event.optional("completion_probabilities")
        for item in event.objects("completion_probabilities")
    ]
    return replies.completion(events[-1], text, probs)


def _openai_stream(events: Sequence[Fields], path: str) -> OpenAIReply:
    final = next((event for event in reversed(events) if event.optional("usage")), None)
    if final is None:
        raise Malformed(f"{path} (stream) sent no usage")
    choices = [choice for event in events for choice in event.objects("choices")]
    if path == "/v1/completions":
        text = "".join(choice.text("text") for choice in choices)
    else:
        text = "".join(_content(choice, "delta") for choice in choices)
    tokens = [item for choice in choices for item in _logprobs(choice)]
    reasons = [str(c.optional("finish_reason")) for c in choices if c.optional("finish_reason")]
    return replies.openai(final, text, tokens, reasons[-1] if reasons else "")


def _content(choice: Fields, part: str) -> str:
    message = choice.object(part)
    return str(message.optional("content") or "")


def _logprobs(choice: Fields) -> Sequence[Fields]:
    if not choice.optional("logprobs"):
        return ()
    return choice.object("logprobs").objects("content")
