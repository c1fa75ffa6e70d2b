"""The rules every reply's numbers keep, whatever was reused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.expect import Failure, Kind
from harness.replies import CompletionReply, OpenAIReply, Reply, SlotFile, Timings

LATER_METRICS = frozenset({"prompt_tokens_cached_total"})
"""Counters that builds before b10423 do not have: there they are not compared."""


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


def slot_file_violations(
    saved: SlotFile, *, id_slot: int, held: int, file_bytes: int
) -> tuple[Failure, ...]:
    """Each rule the reply to a save breaks.

    `held` is how many tokens the last request left in the slot. A server that has moved them
    elsewhere has fewer to save, but never more.
    """
    broken = []
    if saved.id_slot != id_slot:
        broken.append(f"slot {id_slot} was to be saved, slot {saved.id_slot} was")
    if saved.n_tokens > held:
        broken.append(f"n_saved {saved.n_tokens}, but the slot was left with {held} tokens")
    if saved.n_bytes != file_bytes:
        broken.append(f"n_written {saved.n_bytes}, but the file has {file_bytes} bytes")
    return tuple(Failure(Kind.ACCOUNTING, text) for text in broken)


def restored_violations(
    restored: SlotFile, *, id_slot: int, saved: SlotFile | None
) -> tuple[Failure, ...]:
    """Each rule the reply to a restore breaks; `saved` is what the save of the file said."""
    broken = []
    if restored.id_slot != id_slot:
        broken.append(f"slot {id_slot} was to be restored, slot {restored.id_slot} was")
    if saved is not None and restored.n_tokens != saved.n_tokens:
        broken.append(f"n_restored {restored.n_tokens} is not n_saved {saved.n_tokens}")
    if saved is not None and restored.n_bytes != saved.n_bytes:
        broken.append(f"n_read {restored.n_bytes} is not n_written {saved.n_bytes}")
    return tuple(Failure(Kind.ACCOUNTING, text) for text in broken)


def metrics_violations(
    metrics: Mapping[str, float], replies: Sequence[Timings]
) -> tuple[Failure, ...]:
    """Each counter of `/metrics` that is not the sum over all replies since the server started."""
    sums = {
        "prompt_tokens_total": sum(timings.prompt_n for timings in replies),
        "prompt_tokens_cached_total": sum(timings.cache_n for timings in replies),
        "tokens_predicted_total": sum(timings.predicted_n for timings in replies),
    }
    broken = []
    for name, expected in sums.items():
        counted = metrics.get(name)
        if counted is None and name not in LATER_METRICS:
            broken.append(f"/metrics has no {name}")
        elif counted is not None and counted != expected:
            broken.append(f"{name} is {counted:g} in /metrics, {expected} by all replies")
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
