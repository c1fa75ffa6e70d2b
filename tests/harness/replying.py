"""Replies made by hand, for tests of what judges them."""

from __future__ import annotations

from harness.replies import CompletionReply, OpenAIReply, Timings, TokenProbs


def token(id: int, *others: tuple[int, float], logprob: float = -0.1) -> TokenProbs:
    """A generated token, with what else was probable there."""
    return TokenProbs(id, ((id, logprob), *others))


def completion(
    *,
    cache_n: int = 0,
    prompt_n: int = 10,
    predicted_n: int = 4,
    prompt_tokens: int | None = None,
    tokens_cached: int | None = None,
    tokens: tuple[TokenProbs, ...] = (),
    id_slot: int = 0,
    truncated: bool = False,
) -> CompletionReply:
    """A `/completion` reply that keeps every rule, but for what is said otherwise."""
    length = cache_n + prompt_n if prompt_tokens is None else prompt_tokens
    return CompletionReply(
        text="",
        prompt_tokens=length,
        timings=Timings(cache_n, prompt_n, predicted_n, 1.0, 1.0),
        tokens=tokens,
        id_slot=id_slot,
        tokens_cached=length + predicted_n - 1 if tokens_cached is None else tokens_cached,
        truncated=truncated,
    )


def openai(
    *,
    cache_n: int = 0,
    prompt_n: int = 10,
    predicted_n: int = 4,
    cached_tokens: int | None = None,
    completion_tokens: int | None = None,
) -> OpenAIReply:
    """An OpenAI-style reply that keeps every rule, but for what is said otherwise."""
    return OpenAIReply(
        text="",
        prompt_tokens=cache_n + prompt_n,
        timings=Timings(cache_n, prompt_n, predicted_n, 1.0, 1.0),
        tokens=(),
        completion_tokens=predicted_n if completion_tokens is None else completion_tokens,
        cached_tokens=cache_n if cached_tokens is None else cached_tokens,
        finish_reason="length",
    )
