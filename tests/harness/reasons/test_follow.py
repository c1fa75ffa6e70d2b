"""Where states are and what became of them, told by lines of a log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.reasons.chronicle import Chronicle, End, Held, Via
from harness.reasons.course import Course
from harness.reasons.follow import follow
from harness.server.events import EntryTaken, Event, PromptStarted, TaskEnded, TaskStarted
from harness.server.log_reader import events
from tests.harness.server.test_log_reader import LOGS

LRU = "selected slot by LRU, t_last = 1"


class Log:
    """Writes the log of a server, and has it followed."""

    def __init__(self) -> None:
        self.chronicle = Chronicle()

    def step(self, name: str, *messages: str, slot: int = 0, prompt_tokens: int = 401) -> Course:
        """`-` in front of a message makes it one of no slot."""
        lines = [
            f"srv  f: {message}"
            if message.startswith(" ")
            else f"slot f: id {slot} | task 1 | {message}"
            for message in messages
        ]
        return follow(self.chronicle, name, events(lines), prompt_tokens=prompt_tokens)

    def ask(self, name: str, *before: str, kept: int = 0, held: int = 404, slot: int = 0) -> Course:
        """A request with these lines before it is launched."""
        return self.step(
            name,
            *before,
            "processing task, is_child = 0",
            f"new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = {held - 3}",
            f"cached n_tokens = {kept}, memory_seq_rm [{kept}, end)",
            f"stop processing: n_tokens = {held}, truncated = 0",
            slot=slot,
        )


@pytest.fixture
def log() -> Log:
    return Log()


def saving(tokens: int) -> str:
    return f" - saving prompt with length {tokens}, total state size = 0.2 MiB"


def listed(*entries: tuple[str, int]) -> list[str]:
    state = f" - cache state: {len(entries)} prompts, 0.4 MiB (limits: 1.0 MiB, 99 tokens, 9 est)"
    return [state, *(f"   - prompt {at}: {n} tokens, checkpoints: 0, 0.2 MiB" for at, n in entries)]


LOOKED = " - looking for better prompt, base f_keep = 0.002, sim = 0.002"
TAKEN = " - found better prompt with f_keep = 0.990, sim = 0.990"
ROOM = " - making room for prompt cache entry, removing oldest entry (size = 0.2 MiB)"
SIZE = " - cache size limit reached, removing oldest entry (size = 0.2 MiB)"


def test_a_state_is_in_the_slot_it_was_computed_in(log: Log) -> None:
    course = log.ask("P", LRU)
    assert course.slot == 0
    assert course.source is None
    assert log.chronicle.slots == {0: Held(("P",), 404)}


def test_a_state_that_grows_is_a_part_of_the_longer_one(log: Log) -> None:
    log.ask("P", LRU)
    log.ask("P, next turn", kept=404, held=440)
    assert log.chronicle.slots == {0: Held(("P", "P, next turn"), 440)}
    assert log.chronicle.losses == {}


def test_a_state_that_is_cut_is_lost(log: Log) -> None:
    log.ask("P", LRU)
    log.ask("fork", kept=250, held=440)
    loss = log.chronicle.losses["P"]
    assert (loss.end, loss.by, loss.slot, loss.held, loss.kept) == (
        End.OVERWRITTEN,
        "fork",
        0,
        404,
        250,
    )


def test_a_state_that_is_saved_is_not_lost(log: Log) -> None:
    log.ask("P", LRU)
    log.ask(
        "Q", LRU, " updating prompt cache", saving(404), LOOKED, *listed(("0x1", 404)), held=300
    )
    assert log.chronicle.losses == {}
    entry = log.chronicle.in_cache("P")
    assert entry is not None
    assert (entry.steps, entry.tokens, entry.address) == (("P",), 404, "0x1")


def with_entries(log: Log, *steps: str) -> None:
    """States of these steps are in the prompt cache, and the last one's in the slot."""
    for number, step in enumerate(steps):
        saved = [(f"0x{i}", 400 + i) for i in range(1, number + 1)]
        update = [saving(400 + number), LOOKED, *listed(*saved)] if number else []
        log.ask(step, LRU, *update, held=401 + number)


def test_an_entry_that_is_restored_is_consumed(log: Log) -> None:
    """Builds before b10178 do not say which; what is gone from the list it was."""
    with_entries(log, "A", "B", "C")
    course = log.ask(
        "A again", LRU, saving(403), LOOKED, TAKEN, *listed(("0x2", 402), ("0x3", 403))
    )
    assert course.restored == Held(("A",), 401, Via.CACHE)
    assert course.source == Held(("A",), 401, Via.CACHE)
    assert log.chronicle.in_cache("A") is None
    assert log.chronicle.losses["A"].end is End.CUT
    assert {entry.steps for entry in log.chronicle.entries} == {("B",), ("C",)}


def test_which_of_several_entries_was_restored(log: Log) -> None:
    """The one whose shares are those of the one that was found, where the log lists shares."""
    with_entries(log, "A", "B", "C")
    course = log.ask(
        "B again",
        LRU,
        saving(403),
        LOOKED,
        "   - prompt with length 401, lcp = 1, f_keep = 0.002, f_sim = 0.002",
        "   - prompt with length 402, lcp = 398, f_keep = 0.990, f_sim = 0.990",
        TAKEN,
        SIZE,
        *listed(("0x3", 403)),
    )
    assert course.restored is not None
    assert course.restored.steps == ("B",)
    assert log.chronicle.losses["A"].end is End.EVICTED
    assert log.chronicle.losses["A"].why == "size limit (limits: 1 MiB, 99 tokens)"


def test_an_address_that_comes_again(log: Log) -> None:
    """The oldest made room; the new entry is where it was, and as long."""
    log.ask("A", LRU, held=404)
    log.ask("B", LRU, saving(404), LOOKED, *listed(("0x1", 404)), held=404)
    log.ask("C", LRU, saving(404), ROOM, LOOKED, *listed(("0x1", 404)), held=404)
    assert [entry.steps for entry in log.chronicle.entries] == [("B",)]
    assert log.chronicle.losses["A"].end is End.EVICTED
    assert log.chronicle.losses["A"].by == "C"


def test_an_entry_that_a_longer_one_has_all_of(log: Log) -> None:
    log.ask("P", LRU)
    log.ask("Q", LRU, saving(404), LOOKED, *listed(("0x1", 404)))
    log.ask("P, next turn", LRU, saving(404), LOOKED, *listed(("0x1", 404), ("0x2", 404)), held=440)
    obsolete = " - removing obsolete cached prompt with length 404"
    log.ask("R", LRU, saving(440), obsolete, LOOKED, *listed(("0x2", 404), ("0x3", 440)))
    assert log.chronicle.losses == {}
    entry = log.chronicle.in_cache("P")
    assert entry is not None
    assert entry.steps == ("P", "P, next turn")


def test_a_state_that_an_entry_has_already(log: Log) -> None:
    log.ask("P", LRU)
    log.ask("Q", LRU, saving(404), LOOKED, *listed(("0x1", 404)))
    log.ask("P again", LRU, saving(404), LOOKED, *listed(("0x1", 404), ("0x2", 404)), held=300)
    log.ask(
        "R",
        LRU,
        saving(300),
        " - prompt is already in the cache, skipping",
        LOOKED,
        *listed(("0x1", 404), ("0x2", 404)),
    )
    assert log.chronicle.losses["P again"].end is End.COPIED


def test_a_state_that_is_too_large(log: Log) -> None:
    log.ask("long", LRU, held=2500)
    too_large = " - prompt state size 1.3 MiB exceeds cache size limit 1.0 MiB, skipping"
    log.ask("Q", LRU, saving(2500), too_large, LOOKED, *listed())
    assert log.chronicle.losses["long"].end is End.NOT_TAKEN
    assert log.chronicle.losses["long"].why == "1.3 MiB exceeds cache size limit 1.0 MiB"


@pytest.mark.parametrize(
    ("before", "end"),
    [
        ([], End.CLEARED),
        ([" purging slot 0 with 404 tokens"], End.PURGED),
    ],
)
def test_a_slot_that_is_cleared(log: Log, before: list[str], end: End) -> None:
    log.ask("P", LRU)
    log.step("other", *before, "clearing prompt with 404 tokens")
    assert log.chronicle.losses["P"].end is end


def test_an_idle_slot_that_is_saved_and_then_cleared(log: Log) -> None:
    log.ask("P", LRU)
    log.step(
        "Q",
        "saving idle slot to prompt cache",
        saving(404),
        *listed(("0x1", 404)),
        "clearing prompt with 404 tokens",
    )
    assert log.chronicle.slots == {}
    assert log.chronicle.losses == {}
    assert log.chronicle.in_cache("P") is not None


def test_an_idle_slot_that_is_cleared_before_entries_are_listed(log: Log) -> None:
    """As b9093 does."""
    log.ask("P", LRU)
    log.step(
        "Q",
        "saving idle slot to prompt cache",
        saving(404),
        "clearing prompt with 404 tokens",
        *listed(("0x1", 404)),
    )
    assert log.chronicle.losses == {}
    assert log.chronicle.in_cache("P") is not None


def test_what_is_cleared_for_other_adapters(log: Log) -> None:
    log.ask("P", LRU)
    course = log.ask("Q", LRU, "clearing cache for lora change. 1 loras -> 1 loras")
    assert course.discarded == Held(("P",), 404)
    assert log.chronicle.losses["P"].end is End.ADAPTERS


def test_a_request_that_is_no_completion_saves_nothing(log: Log) -> None:
    log.ask("P", LRU)
    log.step(
        "embed",
        "processing task, is_child = 0",
        "cached n_tokens = 1, memory_seq_rm [1, end)",
        "stop processing: n_tokens = 60, truncated = 0",
        prompt_tokens=0,
    )
    assert log.chronicle.losses["P"].end is End.NO_COMPLETION


def test_a_server_that_sleeps_has_nothing(log: Log) -> None:
    with_entries(log, "A", "B")
    log.step("sleep", " server is entering sleeping state")
    assert log.chronicle.slots == {}
    assert log.chronicle.entries == []
    assert {loss.end for loss in log.chronicle.losses.values()} == {End.SLEPT}


def requests(path: Path) -> Iterator[list[Event]]:
    """The events of a log, request after request."""
    request: list[Event] = []
    for event in events(path.read_text().splitlines()):
        request.append(event)
        if isinstance(event, TaskEnded):
            yield request
            request = []


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_the_prompt_cache_is_followed_through_a_whole_log(path: Path) -> None:
    """On each build it is known of every entry that is listed whose state it is."""
    chronicle, restored, lost = Chronicle(), 0, set()
    for number, request in enumerate(requests(path)):
        if any(isinstance(event, TaskStarted) and event.task == 0 for event in request):
            chronicle = Chronicle()  # the next server
        (prompt,) = (event.tokens for event in request if isinstance(event, PromptStarted))
        course = follow(chronicle, str(number), request, prompt_tokens=prompt)
        assert all(entry.steps for entry in chronicle.entries)
        assert course.slot is not None
        assert str(number) in chronicle.slots[course.slot].steps
        restored += course.restored is not None
        lost |= {loss.end for loss in chronicle.losses.values()}
    assert restored == sum(isinstance(e, EntryTaken) for r in requests(path) for e in r) > 0
    assert lost > {End.EVICTED, End.OVERWRITTEN}


def test_an_obsolete_entry_makes_no_room(log: Log) -> None:
    """It is gone before room is made: then the oldest of the others goes."""
    log.ask("A", LRU, held=400)
    idle = "saving idle slot to prompt cache"
    log.step("x", idle, saving(400), *listed(("0x1", 400)))
    log.ask("B", LRU, slot=1, held=401)
    log.step("y", idle, saving(401), *listed(("0x1", 400), ("0x2", 401)), slot=1)
    log.ask("B, another end", slot=1, held=401)
    log.ask("A, next turn", kept=400, held=440)
    obsolete = " - removing obsolete cached prompt with length 400"
    log.step("z", idle, saving(440), obsolete, ROOM, *listed(("0x3", 440)))
    assert log.chronicle.losses["B"].end is End.EVICTED
    assert [entry.steps for entry in log.chronicle.entries] == [("A", "A, next turn")]


def test_no_memory_for_an_entry(log: Log) -> None:
    log.ask("P", LRU)
    failed = " failed to allocate memory for prompt cache state: std::bad_alloc"
    log.ask("Q", LRU, saving(404), failed, LOOKED, *listed())
    assert log.chronicle.losses["P"].end is End.NOT_TAKEN
    assert log.chronicle.losses["P"].why == "out of memory"


def test_what_was_not_saved_is_restored_over(log: Log) -> None:
    log.ask("Q", LRU)
    log.ask("long", LRU, saving(404), LOOKED, *listed(("0x1", 404)), held=2500)
    too_large = " - prompt state size 1.3 MiB exceeds cache size limit 1.0 MiB, skipping"
    log.ask("Q again", LRU, saving(2500), too_large, LOOKED, TAKEN, *listed(), kept=400)
    assert log.chronicle.losses["long"].end is End.NOT_TAKEN


def test_a_slot_that_is_cleared_since_nothing_could_be_restored(log: Log) -> None:
    log.ask("P", LRU)
    failed = " failed to restore state with size 4096"
    cleared = "clearing prompt with 404 tokens"
    course = log.ask("Q", LRU, LOOKED, TAKEN, failed, cleared, *listed(("0x1", 404)))
    assert course.restore_failed
    assert log.chronicle.losses["P"].end is End.NO_ROOM


def test_a_state_that_one_of_two_entries_has(log: Log) -> None:
    """Which one is not told, nor under which adapters that was computed."""
    with_entries(log, "A", "B", "C")
    skipped = " - prompt is already in the cache, skipping"
    both = listed(("0x1", 401), ("0x2", 402))
    log.ask("D", LRU, saving(300), skipped, LOOKED, *both)
    assert log.chronicle.in_cache("C") is None
    assert log.chronicle.losses["C"].end is End.COPIED


def test_a_list_that_breaks_off(log: Log) -> None:
    log.ask("P", LRU)
    log.ask("Q", LRU, saving(404), LOOKED, *listed(("0x1", 404), ("0x2", 404))[:2])
    assert log.chronicle.in_cache("P") is not None


def test_a_refused_slot_file(log: Log) -> None:
    """Whether the server says that it cleared the slot or not."""
    for clears in (["clearing prompt with 404 tokens"], []):
        log.ask("P", LRU)
        log.chronicle.refusing = "restore", 0
        log.step("restore", *clears, " task id = 9, error: Unable to restore slot, no space")
        assert log.chronicle.slots == {}
        assert log.chronicle.losses["P"].end is End.FILE_REFUSED


def test_a_slot_file_that_never_came_to_the_slot(log: Log) -> None:
    """A bad name, say, is refused before."""
    log.ask("P", LRU)
    log.chronicle.refusing = "restore", 0
    log.step("restore")
    assert log.chronicle.in_slots("P") == [0]


def test_a_context_that_is_shifted(log: Log) -> None:
    course = log.ask("P", LRU, "slot context shift, n_keep = 1, n_left = 9, n_discard = 4")
    assert course.context_shifted
    assert log.chronicle.slots[0].shifted


def test_what_could_not_be_cut_back(log: Log) -> None:
    log.ask("P", LRU)
    failed = "failed to truncate tokens with position >= 100 - clearing the memory"
    course = log.step(
        "Q",
        "processing task, is_child = 0",
        "new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = 401",
        "n_tokens = 100, memory_seq_rm [100, end)",
        failed,
    )
    assert (course.kept, course.cut_failed) == (0, True)
    assert log.chronicle.slots == {}


def test_the_oldest_entry_is_restored_and_the_next_one_evicted(log: Log) -> None:
    """Builds before b10178 do not list what entries share: its length tells which was restored."""
    log.ask("A", LRU, held=404)
    log.ask("B", LRU, saving(404), LOOKED, *listed(("0x1", 404)), held=900)
    log.ask("C", LRU, saving(900), LOOKED, *listed(("0x1", 404), ("0x2", 900)), held=404)
    taken = " - found better prompt with f_keep = 0.990, sim = 0.998"
    course = log.ask("A again", LRU, saving(404), LOOKED, taken, SIZE, *listed(("0x3", 404)))
    assert course.restored == Held(("A",), 404, Via.CACHE)
    assert log.chronicle.losses["B"].end is End.EVICTED


def test_an_entry_that_is_gone_for_no_reason_told(log: Log) -> None:
    with_entries(log, "A", "B", "C")
    log.ask("D", LRU, LOOKED, *listed(("0x2", 402)))
    assert log.chronicle.losses["A"].end is End.VANISHED


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ("selected slot by LCP similarity, sim_best = 0.5 (> 0.1 thold), f_keep = 0.600", "0.600"),
        (LRU, ""),  # then it is saved, whatever it shares
    ],
)
def test_why_a_state_was_not_saved(log: Log, choice: str, why: str) -> None:
    log.ask("P", LRU)
    log.ask("Q", "- checking sim = 0.600 (242/401) > 0.100", choice, kept=242)
    loss = log.chronicle.losses["P"]
    assert loss.why == (f"f_keep {why} >= 0.5" if why else "")


def test_a_slot_that_was_asked_for_and_is_not_similar(log: Log) -> None:
    """The server compares before it counts: then nothing counts as shared."""
    log.ask("P", LRU, held=40)
    by_id = ("selected slot by id (0)", "- checking sim = 0.075 (30/401) > 0.100")
    course = log.ask("Q", *by_id, kept=30)
    assert course.f_keep(0, 40) == 0
    assert course.shares(0, 40) == 30
