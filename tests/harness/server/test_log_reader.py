"""Lines of a server's log as events, in every spelling there was."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.server.events import (
    Aborted,
    AdaptersChanged,
    AlreadyCached,
    CacheListed,
    CacheUpdateEnded,
    CacheUpdateStarted,
    CheckpointCreated,
    CheckpointDropped,
    CheckpointRestored,
    CheckpointTried,
    ChunkShifted,
    ContextShifted,
    CutFailed,
    EntryCompared,
    EntryEvicted,
    EntryListed,
    EntryObsolete,
    EntryTaken,
    Event,
    FileRefused,
    FullReprocessing,
    How,
    IdleSlotSaving,
    Limit,
    LookupStarted,
    PoolFull,
    PromptKept,
    PromptNotSaved,
    PromptRead,
    PromptSaving,
    PromptStarted,
    RestoreFailed,
    Sleeping,
    SlotCleared,
    SlotCompared,
    SlotPurged,
    SlotSelected,
    SlotSkipped,
    TaskEnded,
    TaskStarted,
    Unrecognised,
)
from harness.server.log_reader import events

LOGS = sorted((Path(__file__).parent / "logs").glob("*.log"))
"""Recorded of one sequence of requests on each of these builds, with two models."""


def slot(message: str) -> str:
    return f"slot any_function: id  2 | task 7 | {message}"


def srv(message: str) -> str:
    return f"srv  any_function: {message}"


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (slot(" - checking sim = 0.021 (17/795) > 0.100"), SlotCompared(2, 7, 17, 795, 0.1)),
        (slot(" - skipping, slot is empty"), SlotSkipped(2, 7, "empty")),
        (slot(" - skipping, is_processing = 1"), SlotSkipped(2, 7, "busy")),
        (slot("selected slot by id (2)"), SlotSelected(2, 7, How.BY_ID)),
        (
            slot("selected slot by LCP similarity, sim_best = 0.7 (> 0.1 thold), f_keep = 0.621"),
            SlotSelected(2, 7, How.SIMILARITY, 0.621),
        ),
        (
            slot("selected slot by LCP similarity, f_sim_best = 0.7 (> 0.1 thold), f_keep = 0.5"),
            SlotSelected(2, 7, How.SIMILARITY, 0.5),
        ),
        (slot("selected slot by LRU, t_last = -1"), SlotSelected(2, 7, How.LRU)),
        (
            srv(" - saving prompt with length 404, total state size = 0.202 MiB (draft: 0.0 MiB)"),
            PromptSaving(None, None, 404),
        ),
        (
            srv(" - prompt state size 1.3 MiB exceeds cache size limit 1.0 MiB, skipping"),
            PromptNotSaved(None, None, "1.3 MiB exceeds cache size limit 1.0 MiB"),
        ),
        (
            srv("failed to allocate memory for prompt cache state: std::bad_alloc"),
            PromptNotSaved(None, None, "out of memory"),
        ),
        (
            srv(" - removing obsolete cached prompt with length 250"),
            EntryObsolete(None, None, 250),
        ),
        (
            srv(" - making room for prompt cache entry, removing oldest entry (size = 0.2 MiB)"),
            EntryEvicted(None, None, Limit.ROOM),
        ),
        (
            srv(" - cache size limit reached, removing oldest entry (size = 0.2 MiB)"),
            EntryEvicted(None, None, Limit.SIZE),
        ),
        (
            srv(" - cache token limit (99, est: 9) reached, removing oldest entry (size = 1 MiB)"),
            EntryEvicted(None, None, Limit.TOKENS),
        ),
        (
            srv(" - looking for better prompt, base f_keep = -1.000, sim = 0.000"),
            LookupStarted(None, None, -1.0, 0.0),
        ),
        (
            srv(" - looking for better prompt, base f_keep = 0.022, f_sim = 0.024"),
            LookupStarted(None, None, 0.022, 0.024),
        ),
        (
            srv("   - prompt with length     790, lcp =     767, f_keep = 0.971, f_sim = 0.965"),
            EntryCompared(None, None, 790, 767, 0.971, 0.965),
        ),
        (
            srv(" - found better prompt with f_keep = 0.993, sim = 1.000"),
            EntryTaken(None, None, 0.993, 1.0),
        ),
        (srv("failed to restore state with size 4096"), RestoreFailed(None, None, 4096)),
        (
            srv(" - cache state: 2 prompts, 0.4 MiB (limits: 1.0 MiB, 8192 tokens, 99 est)"),
            CacheListed(None, None, 2, 0.4, 1.0, 8192),
        ),
        (
            srv("   - prompt 0x5601a145e9f0:     404 tokens, checkpoints:  3,     0.202 MiB"),
            EntryListed(None, None, "0x5601a145e9f0", 404, 3, 0.202),
        ),
        (slot("clearing prompt with 404 tokens"), SlotCleared(2, 7, 404)),
        (srv("purging slot 3 with 404 tokens"), SlotPurged(None, None, 3, 404)),
        (
            slot("clearing cache for lora change. 0 loras -> 1 loras"),
            AdaptersChanged(2, 7, 0, 1),
        ),
        (
            slot("new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = 401"),
            PromptStarted(2, 7, 401),
        ),
        (slot("n_tokens = 17, memory_seq_rm [17, end)"), PromptKept(2, 7, 17)),
        (slot("cached n_tokens = 17, memory_seq_rm [17, end)"), PromptKept(2, 7, 17)),
        (
            slot("prompt eval time =      27.82 ms /   787 tokens (    0.04 ms per token)"),
            PromptRead(2, 7, 27.82, 787),
        ),
        (
            "prompt eval time =       7.28 ms /   401 tokens (    0.02 ms per token)",
            PromptRead(None, None, 7.28, 401),
        ),
        (
            slot("reusing chunk with size 500, shifting KV cache [400, 900) -> [100, 600)"),
            ChunkShifted(2, 7, 500),
        ),
        (slot("Checking checkpoint with [9, 10] against 3..."), CheckpointTried(2, 7, 9, 10, 3)),
        (slot("checking checkpoint with [-1, 10] against 3..."), CheckpointTried(2, 7, -1, 10, 3)),
        (
            slot(
                "restored context checkpoint (pos_min = 296, pos_max = 296, n_tokens = 297, "
                "n_past = 290, size = 0.020 MiB)"
            ),
            CheckpointRestored(2, 7, 297, 290),
        ),
        (
            slot(
                "erased invalidated context checkpoint (pos_min = 4, pos_max = 4, n_tokens = 5, "
                "n_swa = 0, pos_next = 2, size = 0.020 MiB)"
            ),
            CheckpointDropped(2, 7, 5),
        ),
        (slot("superseding context checkpoint at n_tokens = 297"), CheckpointDropped(2, 7, 297)),
        (slot("stop processing: n_tokens = 404, truncated = 0"), TaskEnded(2, 7, 404)),
        (
            srv("task id = 9, error: Unable to restore slot, no available space in KV cache"),
            FileRefused(None, None),
        ),
        (srv("server is entering sleeping state"), Sleeping(None, None)),
        (
            "/build/src/llama-context.cpp:3142: GGML_ASSERT(nread <= state_size) failed",
            Aborted(None, None, "GGML_ASSERT(nread <= state_size) failed"),
        ),
    ],
)
def test_lines(line: str, event: Event) -> None:
    assert list(events([line])) == [event]


@pytest.mark.parametrize(
    "front",
    [
        "",
        "0.00.103.166 I ",
        "12.34.103.166 W ",
        "Nov 30 12:00:00 host llama-server[71]: 0.00.103.166 I ",
        "2026-11-30T12:00:00.1Z stderr F 0.00.103.166 I ",
    ],
)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_what_may_stand_around_a_line(front: str, end: str) -> None:
    line = (
        f"{front}slot      release: id  0 | task 5 | stop processing: n_tokens = 4, truncated = 0"
    )
    assert list(events([line + end])) == [TaskEnded(0, 5, 4)]


def test_a_task_that_has_none_yet() -> None:
    (event,) = events(["slot x: id  0 | task -1 | selected slot by id (0)"])
    assert (event.slot, event.task) == (0, None)


@pytest.mark.parametrize(
    "line",
    [
        slot("nobody has ever said this"),
        slot("stop processing: something else"),
        srv("the prompt cache does something new"),
        srv(" - cache state: many"),
        srv(" - cache token budget used up, removing newest entry"),
    ],
)
def test_an_unknown_line_of_slots_or_of_the_cache_is_one(line: str) -> None:
    (event,) = events([line])
    assert isinstance(event, Unrecognised)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\n",
        "llama_model_loader: loaded meta data",
        "sched_reserve: reserve took 0.93 ms, sched copies = 1",
        "\trepeat_last_n = 64, repeat_penalty = 1.000",
        "srv  any_function: all slots are idle",
        "srv  any_function: chat format: peg-native",
        "slot any_function: id  0 | task 4 | ",
        slot("init sampler, took 0.09 ms, tokens: text = 787, total = 787"),
        slot("n_past was set to 400"),
        slot("40 tokens since last checkpoint at 2, creating new checkpoint at position 42"),
        srv("init: idle slots will be saved to prompt cache and cleared upon starting a new task"),
    ],
)
def test_what_says_nothing_of_reuse(line: str) -> None:
    assert list(events([line])) == []


def test_it_reads_no_further_than_it_is_asked_to() -> None:
    """A log of any size can be streamed."""

    def endless() -> Iterable[str]:
        while True:
            yield slot("stop processing: n_tokens = 4, truncated = 0")

    assert next(events(endless())) == TaskEnded(2, 7, 4)


OTHERS = [
    (srv(" - prompt is already in the cache, skipping"), AlreadyCached(None, None)),
    (slot("saving idle slot to prompt cache"), IdleSlotSaving(2, 7)),
    (slot("processing task, is_child = 0"), TaskStarted(2, 7)),
    (slot("forcing full prompt re-processing due to lack of cache data"), FullReprocessing(2, 7)),
    (slot("slot context shift, n_keep = 1, n_left = 9, n_discard = 4"), ContextShifted(2, 7)),
    (slot("failed to truncate tokens with position >= 9 - clearing the memory"), CutFailed(2, 7)),
    (srv("failed to find free space in the KV cache, retrying"), PoolFull(None, None)),
    (srv("updating prompt cache"), CacheUpdateStarted(None, None)),
    (srv("prompt cache update took 0.04 ms"), CacheUpdateEnded(None, None, 0.04)),
    (
        slot("created context checkpoint 1 of 32 (pos_min = 4, pos_max = 4, n_tokens = 5, size"),
        CheckpointCreated(2, 7, 5),
    ),
    *(
        (slot(f"{words} (pos_min = 4, pos_max = 4, n_tokens = 5, size"), CheckpointDropped(2, 7, 5))
        for words in (
            "erasing old context checkpoint",
            "erasing context checkpoint too close to an earlier one",
            "failed to restore context checkpoint",
        )
    ),
    ("srv  any_function: entering sleeping state", Sleeping(None, None)),
]
"""Lines with little or nothing but words."""


@pytest.mark.parametrize(("line", "event"), OTHERS)
def test_other_lines(line: str, event: Event) -> None:
    assert list(events([line])) == [event]


def test_an_interrupted_number_is_none() -> None:
    (event,) = events([slot("selected slot by LCP similarity, f_keep = 0.700abc")])
    assert isinstance(event, Unrecognised)


def test_an_unknown_line_is_quoted_up_to_what_may_be_a_prompt() -> None:
    (event,) = events([slot("nobody has said: 'a secret' before")])
    assert event == Unrecognised(2, 7, "nobody has said")


def test_colours() -> None:
    line = "\x1b[32m0.00.103.166\x1b[0m I \x1b[0mslot  f: id  0 | task 5 | selected slot by id (0)"
    assert list(events([line])) == [SlotSelected(0, 5, How.BY_ID)]


def test_a_line_within_a_text_is_none() -> None:
    assert list(events(["user said srv  x: updating prompt cache"])) == []


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_a_whole_log_of_each_build(log: Path) -> None:
    """No line is unknown, and the numbers of each request add up."""
    found = list(events(log.read_text().splitlines()))
    assert not [event for event in found if isinstance(event, Unrecognised)]
    prompt = kept = None
    requests = 0
    for event in found:
        if isinstance(event, PromptStarted):
            prompt, kept = event.tokens, None
        elif isinstance(event, PromptKept) and kept is None:
            kept = event.tokens
        elif isinstance(event, PromptRead):
            assert kept is not None
            assert prompt == kept + event.tokens
            requests += 1
    assert requests == sum(isinstance(event, TaskStarted) for event in found) > 0
