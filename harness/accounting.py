"""The rules every reply's numbers keep, whatever was reused."""

from __future__ import annotations

from harness.expect import Failure, Kind
from harness.replies import CompletionReply, OpenAIReply, Reply


def violations(
    reply: Reply,
    *,
    prompt_tokens: int,
    n_predict: int | None = None,
    id_slot: int | None = None,
) -> tuple[Failure, ...]:
    """Each rule the reply breaks.

    `prompt_tokens` is the prompt's length by `/tokenize`; `n_predict` and `id_slot` are what was
    asked for (an answer is never ended by EOS).
    """
    broken = _lengths(reply, prompt_tokens)
    if n_predict is not None and reply.timings.predicted_n != n_predict:
        broken.append(f"{n_predict} tokens were asked for, predicted_n {reply.timings.predicted_n}")
    if isinstance(reply, CompletionReply):
        broken += _completion(reply, id_slot)
    if isinstance(reply, OpenAIReply):
        broken += _openai(reply)
    return tuple(Failure(Kind.ACCOUNTING, text) for text in broken)


def _lengths(reply: Reply, prompt_tokens: int) -> list[str]:
    timings, broken = reply.timings, []
    if timings.cache_n + timings.prompt_n != reply.prompt_tokens:
        broken.append(
            f"cache_n {timings.cache_n} + prompt_n {timings.prompt_n} "
            f"is not the prompt's length {reply.prompt_tokens}"
        )
    if reply.prompt_tokens != prompt_tokens:
        broken.append(
            f"the prompt has {prompt_tokens} tokens by /tokenize, "
            f"{reply.prompt_tokens} by the reply"
        )
    if timings.cache_n < 0 or timings.prompt_n < 1:
        broken.append(f"cache_n {timings.cache_n}, prompt_n {timings.prompt_n}: out of range")
    if reply.tokens and len(reply.tokens) != timings.predicted_n:
        broken.append(
            f"predicted_n {timings.predicted_n}, but {len(reply.tokens)} tokens were reported"
        )
    return broken


def _completion(reply: CompletionReply, id_slot: int | None) -> list[str]:
    broken = []
    held = reply.prompt_tokens + reply.timings.predicted_n - 1
    # A context shift (truncated) drops tokens from the slot.
    if not reply.truncated and reply.tokens_cached != held:
        broken.append(
            f"tokens_cached {reply.tokens_cached} is not "
            f"tokens_evaluated {reply.prompt_tokens} + predicted_n {reply.timings.predicted_n} - 1"
        )
    if id_slot is not None and reply.id_slot != id_slot:
        broken.append(f"slot {id_slot} was asked for, slot {reply.id_slot} answered")
    return broken


def _openai(reply: OpenAIReply) -> list[str]:
    broken = []
    if reply.cached_tokens != reply.timings.cache_n:
        broken.append(
            f"usage.cached_tokens {reply.cached_tokens} is not cache_n {reply.timings.cache_n}"
        )
    if reply.completion_tokens != reply.timings.predicted_n:
        broken.append(
            f"usage.completion_tokens {reply.completion_tokens} "
            f"is not predicted_n {reply.timings.predicted_n}"
        )
    return broken
