"""llama-server's log as typed events.

One pure pass over lines, so that a log of any size can be streamed. Lines are told by the text of
their message, in every spelling from b9093 to b11434, and never by the name of a function, which
drifts. At `-lv 4` (3 on builds without a trace level) a log has all of them and no prompt text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class _Rule:
    """How the messages with one beginning are understood."""

    pattern: re.Pattern[str]
    make: Callable[..., Event]
    given: tuple[object, ...]
    """Comes before the groups of the pattern."""


def _rule(make: type[Event], pattern: str = "", *given: object) -> _Rule:
    return _Rule(re.compile(pattern), make, given)


_RATIO = r"(-?\d+\.\d+|-?nan|-?inf)(?=[,\s]|$)"
_SHARES = rf"f_keep = {_RATIO}, (?:f_)?sim = {_RATIO}"
_TRIED = _rule(CheckpointTried, r"\[(-?\d+), (-?\d+)\] against (-?\d+)")
_KEPT = _rule(PromptKept, r"(\d+), memory_seq_rm")
_DROPPED = _rule(CheckpointDropped, r"n_tokens = (\d+)")
_IN_CACHE = r"prompt (0\w+): +(\d+) tokens, checkpoints: +(\d+), +([\d.]+)"
_CACHE = r"(\d+) prompts, ([\d.]+) MiB \(limits: ([\d.]+) MiB, (\d+) tokens"
_OVER = r"prompt state size (.* MiB exceeds cache size limit .* MiB)"

# By how a message begins, without the spaces and dashes in front of some.
_RULES: dict[str, _Rule] = {
    "checking sim =": _rule(SlotCompared, r"\((\d+)/(\d+)\) > ([\d.]+)"),
    "skipping, slot is empty": _rule(SlotSkipped, "", "empty"),
    "skipping, is_processing": _rule(SlotSkipped, "", "busy"),
    "selected slot by id (": _rule(SlotSelected, "", How.BY_ID),
    "selected slot by LCP": _rule(SlotSelected, rf"f_keep = {_RATIO}", How.SIMILARITY),
    "selected slot by LRU": _rule(SlotSelected, "", How.LRU),
    "updating prompt cache": _rule(CacheUpdateStarted),
    "prompt cache update took": _rule(CacheUpdateEnded, r"([\d.]+) ms"),
    "saving prompt with length": _rule(PromptSaving, r"(\d+)"),
    "prompt is already in the cache": _rule(AlreadyCached),
    "prompt state size": _rule(PromptNotSaved, _OVER),
    "failed to allocate memory for prompt cache": _rule(PromptNotSaved, "", "out of memory"),
    "removing obsolete cached prompt": _rule(EntryObsolete, r"length (\d+)"),
    "making room for prompt cache entry": _rule(EntryEvicted, "", Limit.ROOM),
    "cache size limit reached": _rule(EntryEvicted, "", Limit.SIZE),
    "cache token limit (": _rule(EntryEvicted, "", Limit.TOKENS),
    "looking for better prompt": _rule(LookupStarted, _SHARES),
    "prompt with length": _rule(EntryCompared, rf"(\d+), lcp = +(\d+), {_SHARES}"),
    "found better prompt": _rule(EntryTaken, _SHARES),
    "failed to restore state with size": _rule(RestoreFailed, r"size (\d+)"),
    "cache state:": _rule(CacheListed, _CACHE),
    "prompt 0": _rule(EntryListed, _IN_CACHE),
    "saving idle slot to prompt cache": _rule(IdleSlotSaving),
    "clearing prompt with": _rule(SlotCleared, r"(\d+) tokens"),
    "purging slot": _rule(SlotPurged, r"slot (\d+) with (\d+)"),
    "failed to find free space in the KV cache": _rule(PoolFull),
    "clearing cache for lora change": _rule(AdaptersChanged, r"(\d+) loras -> (\d+)"),
    "processing task,": _rule(TaskStarted),
    "new prompt,": _rule(PromptStarted, r"task\.n_tokens = (\d+)"),
    "cached n_tokens =": _KEPT,
    "n_tokens =": _KEPT,
    "prompt eval time =": _rule(PromptRead, r"([\d.]+) ms / +(\d+) tokens"),
    "failed to truncate tokens": _rule(CutFailed),
    "slot context shift": _rule(ContextShifted),
    "reusing chunk with size": _rule(ChunkShifted, r"(\d+), shifting"),
    "Checking checkpoint": _TRIED,
    "checking checkpoint": _TRIED,
    "restored context checkpoint": _rule(CheckpointRestored, r"n_tokens = (\d+), n_past = (\d+)"),
    "forcing full prompt re-processing": _rule(FullReprocessing),
    "created context checkpoint": _rule(CheckpointCreated, r"n_tokens = (\d+)"),
    "erased invalidated context checkpoint": _DROPPED,
    "erasing old context checkpoint": _DROPPED,
    "erasing context checkpoint too close": _DROPPED,
    "superseding context checkpoint": _DROPPED,
    "failed to restore context checkpoint": _DROPPED,
    "stop processing:": _rule(TaskEnded, r"n_tokens = (\d+)"),
    "server is entering sleeping state": _rule(Sleeping),
    "entering sleeping state": _rule(Sleeping),
}

# What begins like these speaks of slots or of what is kept, and decides nothing.
_SAYS_NOTHING = (
    *("acc per pos", "accepted", "copying shared prompt", "copying state", "created speculative"),
    *("draft acceptance", "draft size", "empty prompt", "encoding mtmd", "eval time"),
    *("failed to decode mtmd", "failed to encode mtmd", "failed to get embeddings"),
    *("failed to load prompt from cache", "failed to process"),
    *("got exception", "graphs reused", "init sampler", "keeping cache for alora"),
    *("message_spans", "n_decoded", "n_gen", "n_past", "need to evaluate at least 1 token"),
    *("new slot", "prompt processing", "sampler chain", "sampler params"),
    *("slot is not processing", "speculative decoding", "tokens since last checkpoint"),
    *("total time", "cache reuse is not supported"),
    *("cache size limit reduced", "cache-idle-slots requires", "kv-unified-per-slot"),
    *("all slots are idle", "cache_reuse is not supported", "capping per-slot", "chat template"),
    *("context checkpoints", "control", "done request", "failed to launch slot"),
    *("for more info see", "idle slots will be saved", "initializing", "launching slots"),
    *("LLAMA_SERVER_SLOTS", "loading", "local path", "prompt cache is"),
    *("server is exiting sleeping state", "exiting sleeping state", "set lora adapter"),
    *("the slot context", "use `--cache-ram 0`"),
    # of a router, and with a prompt: LLAMA_SERVER_SLOTS_DEBUG, -lv 5
    *("Loaded", "slot available", "removing model", "old: ...", "new: ...", "launching slot"),
    *("prompt token", "next token", "slot decode token", "Prompt:"),
)
_REFUSED = re.compile(r"task id = \d+, error: Unable to restore slot")

# What stands in front, of the server itself or of what collects its log, ends in no small letter: a
# line within a text is none.
_LINE = re.compile(
    r"(?:^|^.*?[^\sa-z] +)(?:slot +\S+: id +(\d+) \| task (-?\d+) \| |srv +\S+: )[ -]*(.*)"
)
_ESCAPE = "\x1b"
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_LETTERS = re.compile(r"[A-Za-z ,_-]{0,40}")
# A builder may put a function's name, or a number, in front of what it says.
_START = re.compile(
    r"(?:\w+: +-* *|\d+ )?("
    + "|".join(re.escape(start) for start in sorted((*_RULES, *_SAYS_NOTHING), key=len)[::-1])
    + ")"
)
# Of the lines that are of no slot those count that have to do with what is kept.
_KEEPS = re.compile(r"slot|cache(?!d_resp)|checkpoint|lora|better prompt|purg|restor|sleep", re.I)
# b9093 to b9113 write the timings of a task on lines of their own.
_BARE = "prompt eval time ="
# How ggml says, on its way out, where and why it ended the process.
_ABORTED = re.compile(r"\S+\.(?:c|cpp|h|hpp|cu|cuh|m):\d+: (.+)")


def events(lines: Iterable[str]) -> Iterator[Event]:
    """What a log says, in its order. Lines that decide nothing about reuse give nothing."""
    for line in lines:
        if _ESCAPE in line:
            line = _COLOURS.sub("", line)
        if found := _LINE.search(line):
            slot, task, message = found.groups()
            known = task not in (None, "-1")
            event = _event(message, int(slot) if slot else None, int(task) if known else None)
        elif line.startswith(_BARE):
            event = _event(line, None, None)
        elif found := _ABORTED.match(line):
            event = Aborted(None, None, found[1])
        else:
            continue
        if event is not None:
            yield event


def _event(message: str, slot: int | None, task: int | None) -> Event | None:
    start = _START.match(message)
    if start is None:
        if _REFUSED.match(message):
            return FileRefused(slot, task)
        speaks = message and (slot is not None or _KEEPS.search(message))
        return _unrecognised(message, slot, task) if speaks else None
    rule = _RULES.get(start[1])
    if rule is None:
        return None
    if (found := rule.pattern.search(message)) is None:
        return _unrecognised(message, slot, task)
    return rule.make(slot, task, *rule.given, *map(_value, found.groups()))


def _unrecognised(message: str, slot: int | None, task: int | None) -> Unrecognised:
    start = _LETTERS.match(message)
    return Unrecognised(slot, task, start[0].strip() if start else "")


def _value(text: str) -> int | float | str:
    """A number where it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
