"""Reasons where no prebuilt server shows them: other builds, and what only happens now and then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.cause import Cause
from harness.expect import Kind
from harness.explain import Logged, explained
from harness.ledger import Reason, RequestRow, SlotFileRow
from harness.reasons.chronicle import End, Loss
from harness.reasons.course import Rules
from harness.reasons.miss import lost
from harness.server.log_reader import events
from tests.harness.reasons.test_follow import LOOKED, LRU, SIZE, TAKEN, listed, saving

Step = tuple[RequestRow, list[str]]

LIKE = "selected slot by LCP similarity, sim_best = 0.900 (> 0.100 thold), f_keep = 0.900"
CHANGED = "clearing cache for lora change. 1 loras -> 1 loras"


def ask(
    step: str,
    *before: str,
    cache_n: int = 0,
    possible: int = 0,
    state: str | None = None,
    slot: int = 0,
    asked: int | None = None,
    scale: float = 0.0,
    failures: tuple[tuple[str, str], ...] = (),
) -> Step:
    """A request of 401 tokens, with these lines before it is launched."""
    row = RequestRow(
        step=step,
        route="completion",
        setting={"A": scale} if scale else {},
        slot_asked=asked,
        prompt_tokens=401,
        possible=possible,
        states=(state,) if state else (),
        shared=possible,
        slot=slot,
        cache_n=cache_n,
        prompt_n=401 - cache_n,
        failures=failures,
    )
    lines = [
        *before,
        "processing task, is_child = 0",
        "new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = 401",
        f"cached n_tokens = {cache_n}, memory_seq_rm [{cache_n}, end)",
        "stop processing: n_tokens = 404, truncated = 0",
    ]
    of_slot = f"slot f: id {slot} | task 1 | "
    return row, [("srv  f: " if m.startswith(" ") else of_slot) + m for m in lines]


def reason(*steps: Step, similarity: float = 0.1) -> Reason | None:
    """That of the last step."""
    told = [Logged(row, events(lines), Rules(similarity)) for row, lines in steps]
    return explained(told)[-1].reason


def saved(step: str) -> Step:
    """A request before which what was in the slot was saved."""
    return ask(step, LRU, saving(404), LOOKED, *listed(("0x1", 404)))


def test_a_build_that_does_not_look_for_pinned_slots() -> None:
    """b9713 and before say nothing of a slot that is asked for (upstream #24746)."""
    found = reason(ask("P", LRU), saved("Q"), ask("P again", possible=400, state="P", asked=0))
    assert found == Reason(
        cause=Cause.PINNED,
        text="the state of 'P' was in the prompt cache; "
        "this build does not look there for a pinned slot",
    )


def test_an_entry_that_could_not_be_restored() -> None:
    failed = " failed to restore state with size 4096"
    last = ask("P again", LRU, LOOKED, TAKEN, failed, possible=400, state="P")
    found = reason(ask("P", LRU), saved("Q"), last)
    assert found is not None
    assert found.cause == Cause.POOL_FULL


def test_another_entry_that_was_taken() -> None:
    found = reason(
        ask("P", LRU),
        saved("Q"),
        ask("R", LRU, saving(404), LOOKED, *listed(("0x1", 404), ("0x2", 404))),
        ask("P again", LRU, LOOKED, TAKEN, *listed(("0x1", 404)), possible=400, state="P"),
    )
    assert found is not None
    assert found.cause == Cause.BELOW_THRESHOLD
    assert found.text.endswith("that of 'Q', 404 tokens, was taken")


def test_an_entry_that_was_restored_over_the_state() -> None:
    last = ask("P again", LIKE, LOOKED, TAKEN, *listed(), possible=400, state="Q")
    found = reason(ask("P", LRU), saved("Q"), last)
    assert found == Reason(
        cause=Cause.BELOW_THRESHOLD,
        text="the state of 'Q' was in slot 0, and that of 'P', 404 tokens, was restored over it",
    )


def test_a_state_whose_slot_was_passed_over_for_one_of_other_adapters() -> None:
    found = reason(
        ask("P", LRU, slot=1),
        ask("P under A", LRU, scale=1.0),
        ask("P again", LIKE, CHANGED, possible=400, state="P"),
    )
    assert found == Reason(
        cause=Cause.DISCARDED,
        text="the state of 'P' was in slot 1; slot 0 was chosen, and the state of 'P under A' "
        "there was cleared: the last request of slot 0, 'P under A', had A at 1, and this has "
        "no adapter",
    )


def test_an_entry_evicted_after_the_fact() -> None:
    """By a size limit, as builds before b9917 have it: once the new entry is there."""
    found = reason(
        ask("P", LRU),
        saved("Q"),
        ask("R", LRU, saving(404), LOOKED, SIZE, *listed(("0x2", 404))),
        ask("P again", LRU, LOOKED, *listed(("0x2", 404)), possible=400, state="P"),
    )
    assert found == Reason(
        cause=Cause.EVICTED,
        text="the state of 'P' (404 tokens) was the oldest entry when 'R' came: "
        "size limit (limits: 1 MiB, 99 tokens)",
    )


def test_an_entry_that_was_restored_and_cleared_for_another_request() -> None:
    found = reason(
        ask("P", LRU, scale=0.5),
        saved("Q"),
        ask("P under none", LRU, LOOKED, TAKEN, *listed(), CHANGED),
        ask("P again", LIKE, CHANGED, possible=400, state="P", scale=0.5),
    )
    assert found is not None
    assert found.cause == Cause.CONSUMED


def test_a_slot_file_over_a_state() -> None:
    restore = RequestRow(
        step="restore",
        route="restore",
        slot_asked=0,
        states=("R",),
        file=SlotFileRow(tokens=404, bytes=9, ms=1.0),
    )
    found = reason(ask("P", LRU), (restore, []), ask("P again", LIKE, possible=400, state="P"))
    assert found is not None
    assert found.cause == Cause.SLOT_TAKEN
    assert "was given the slot file of 'restore'" in found.text


def test_similarity_off_where_another_slot_came_next() -> None:
    last = ask("P again", LRU, possible=400, state="P", slot=1)
    found = reason(ask("P", LRU), last, similarity=0.0)
    assert found is not None
    assert found.cause == Cause.SIMILARITY_OFF


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (Kind.CRASH, Cause.ENDED),
        (Kind.HANG, Cause.NO_ANSWER),
        (Kind.REFUSED, Cause.REFUSED),
        (Kind.ACCEPTED, Cause.ACCEPTED),
        (Kind.ACCOUNTING, Cause.NUMBERS),
    ],
)
def test_what_has_nothing_to_do_with_reuse(kind: Kind, cause: Cause) -> None:
    assert reason(ask("P", LRU, failures=((kind, "so it was"),))) == Reason(
        cause=cause, text="so it was"
    )


def test_every_end_is_put_into_words() -> None:
    for end in End:
        found = lost("P", Loss(end, "Q", slot=0, held=404, kept=17, why="why"), {})
        assert "'P'" in found.text
        assert "{" not in found.text


def test_no_kind_of_failure_is_unknown() -> None:
    for kind in set(Kind) - {Kind.LOST_REUSE, Kind.WRONG_REUSE, Kind.WRONG_ANSWER}:
        found = reason(ask("P", LRU, failures=((kind, "so it was"),)))
        assert found is not None
        assert found.cause is not Cause.UNKNOWN


@pytest.mark.parametrize(
    ("kinds", "cache_n", "cause"),
    [
        ((Kind.LOST_REUSE,), 0, Cause.NOT_READ),
        ((Kind.LOST_REUSE, Kind.WRONG_ANSWER), 0, Cause.NOT_READ),
        ((Kind.WRONG_REUSE,), 300, Cause.NOT_READ),
        ((Kind.WRONG_ANSWER,), 300, Cause.NOT_READ),
        ((Kind.WRONG_ANSWER,), 0, Cause.NOT_REUSED),
        ((Kind.CRASH,), 0, Cause.ENDED),
        ((Kind.ACCOUNTING,), 0, Cause.NUMBERS),
    ],
)
def test_where_the_log_is_not_read(kinds: tuple[Kind, ...], cache_n: int, cause: Cause) -> None:
    """What the reply itself shows is said, and nothing is guessed."""
    row, _ = ask("P", cache_n=cache_n, failures=tuple((kind, "so it was") for kind in kinds))
    (told,) = explained([Logged(row, None)])
    assert told.reason is not None
    assert told.reason.cause is cause


def test_where_the_log_is_not_read_and_nothing_failed() -> None:
    (row, _), (again, _) = ask("P", cache_n=400, possible=400), ask("P", cache_n=1, possible=400)
    whole, part = explained([Logged(row, None), Logged(again, None)])
    assert whole.reason is None
    assert part.reason is not None
    assert (part.reason.cause, part.read_again) == (Cause.NOT_READ, 399)


def test_a_refused_slot_file_is_to_blame_once() -> None:
    """What clears the slot later on is another matter."""
    refused = RequestRow(step="restore", route="restore", slot_asked=0)
    told = ["srv  f: task id = 9, error: Unable to restore slot, no space"]
    erase = RequestRow(step="erase", route="erase")
    cleared = ["slot f: id 0 | task 1 | clearing prompt with 404 tokens"]
    last = ask("P again", LRU, possible=400, state="P")
    for log in (told, []):  # where it is not told of, the file never came to the slot
        found = reason((refused, log), ask("P", LRU), (erase, cleared), last)
        assert found is not None
        assert found.cause == Cause.CLEARED


def test_a_slot_file_that_never_came_to_its_slot_is_to_blame_for_nothing() -> None:
    """A bad name, say: the next request empties the slot, as idle slots are."""
    refused = RequestRow(step="restore", route="restore", slot_asked=0)
    row, lines = ask("Q", LRU, slot=1)
    lines.insert(2, "slot f: id 0 | task -1 | clearing prompt with 404 tokens")
    last = ask("P again", LRU, possible=400, state="P")
    found = reason(ask("P", LRU), (refused, []), (row, lines), last)
    assert found is not None
    assert found.cause == Cause.CLEARED


def test_the_old_servers_last_words() -> None:
    """They are read before a restart begins anew."""
    restart = RequestRow(step="restart 1", route="restart")
    late = ["slot f: id 0 | task 1 | stop processing: n_tokens = 404, truncated = 0"]
    row, lines = ask("P again", LRU, cache_n=0)
    assert reason(ask("P", LRU), (restart, late), (row, lines)) is None


def test_a_request_that_ends_late() -> None:
    """Its last line comes when a slot file was restored already, and takes nothing from that."""
    end = "slot f: id 0 | task 1 | stop processing: n_tokens = 404, truncated = 0"
    file = SlotFileRow(tokens=404, bytes=9, ms=1.0)
    restore = RequestRow(step="restore", route="restore", slot_asked=0, states=("R",), file=file)
    wrong = ((Kind.WRONG_REUSE, "too much"),)
    found = reason(
        ask("R", LRU),
        (restore, [end]),
        ask("P", LIKE, cache_n=17, failures=wrong),
    )
    assert found is not None
    assert found.cause == Cause.FROM_FILE


def test_a_shifted_state_in_the_prompt_cache() -> None:
    shift = "slot context shift, n_keep = 1, n_left = 9, n_discard = 4"
    last = ask("P again", LRU, LOOKED, *listed(("0x1", 404)), possible=400, state="P")
    found = reason(ask("P", LRU, shift), saved("Q"), last)
    assert found is not None
    assert found.cause == Cause.CONTEXT_SHIFTED


def test_memory_that_fell_short_in_the_slot_that_was_used() -> None:
    """Little was shared, and nothing of it used: it was in the right place."""
    row, lines = ask("fork", LRU, possible=30, state="P")
    lines.insert(3, "slot f: id 0 | task 1 | forcing full prompt re-processing due to lack of")
    found = reason(ask("P", LRU), (row, lines))
    assert found is not None
    assert found.cause == Cause.NO_CHECKPOINT


def test_lines_that_come_late() -> None:
    """The log is written by another thread: a refusal may be told of after it was answered."""
    refused = RequestRow(step="restore", route="restore", slot_asked=0)
    row, lines = ask("P again", LRU, possible=400, state="P")
    late = "srv  f: task id = 9, error: Unable to restore slot, no space"
    found = reason(ask("P", LRU), (refused, []), (row, [late, *lines]))
    assert found is not None
    assert found.cause == Cause.FILE_REFUSED


def test_a_wrong_answer_without_any_reuse() -> None:
    found = reason(ask("P", LRU, failures=((Kind.WRONG_ANSWER, "another cell"),)))
    assert found == Reason(cause=Cause.NOT_REUSED, text="cache_n is 0")


def test_a_wrong_answer_at_a_checkpoint() -> None:
    restored = (
        "restored context checkpoint (pos_min = 1, pos_max = 9, n_tokens = 348, n_past = 347, "
    )
    wrong = ((Kind.WRONG_ANSWER, "too far apart"),)
    row, lines = ask("P again", LIKE, cache_n=347, possible=400, state="P", failures=wrong)
    lines.insert(3, "slot f: id 0 | task 1 | " + restored)
    assert reason(ask("P", LRU), (row, lines)) == Reason(
        cause=Cause.AT_CHECKPOINT,
        text="slot 0 had the state of 'P', resumed at its checkpoint after 347 tokens",
    )


def test_reuse_under_the_same_adapters_that_went_too_far() -> None:
    """Of a slot file whose list of tokens is not what its KV was computed from."""
    wrong = ((Kind.WRONG_REUSE, "too much"), (Kind.WRONG_ANSWER, "another text"))
    last = ask("P again", LIKE, cache_n=400, possible=41, state="P", failures=wrong)
    assert reason(ask("P", LRU), last) == Reason(
        cause=Cause.FROM_SLOT,
        text="slot 0 had the state of 'P', computed under the same adapters, no adapter",
    )


@pytest.mark.parametrize("lines", [[], ["garbage", "slot f: id 0 | task 1 | more of it"]])
def test_a_log_that_tells_nothing(lines: list[str]) -> None:
    row, _ = ask("P again", possible=400, state="P")
    assert reason(ask("P", LRU), (row, lines)) == Reason(
        cause=Cause.UNKNOWN, text="the log does not tell of this request"
    )


def test_all_that_is_possible_needs_no_reason() -> None:
    assert reason(ask("P", LRU), ask("P again", LIKE, cache_n=400, possible=400, state="P")) is None


def test_how_the_slot_was_chosen() -> None:
    steps = [
        ask("P", LRU),
        ask("like it", LIKE),
        ask("asked for", "selected slot by id (0)", asked=0),
        ask("asked for, before b9725", asked=0),
    ]
    rows = explained(Logged(row, events(lines)) for row, lines in steps)
    assert [row.chosen for row in rows] == [
        "least recently used",
        "most similar",
        "asked for",
        "asked for",
    ]


def test_an_entry_that_went_after_it_was_looked_at() -> None:
    """By a size limit, once all is done: what it was not good enough for is the reason."""
    last = ask("P short", LRU, saving(404), LOOKED, SIZE, *listed(("0x2", 404)))
    row, lines = last
    row = replace(row, possible=80, shared=80, states=("P",), prompt_tokens=81)
    found = reason(ask("P", LRU), saved("Q"), (row, lines))
    assert found is not None
    assert found.cause == Cause.BELOW_THRESHOLD
    assert "80 of its 404 tokens, f_keep 0.198 < 0.25" in found.text


def test_a_short_state_that_would_have_been_restored() -> None:
    """It has little of the prompt, and the prompt all of it."""
    short = ask("P", LRU)
    row, lines = ask("P, long turn", LRU, LOOKED, *listed(("0x2", 404)), state="P")
    row = replace(row, possible=30, shared=30)
    short = replace(short[0]), [line.replace("404", "34") for line in short[1]]
    save = ask("Q", LRU, saving(34), LOOKED, *listed(("0x1", 34)))
    evict = ask("R", LRU, saving(404), SIZE, *listed(("0x2", 404)))
    found = reason(short, save, evict, (row, lines))
    assert found is not None
    assert found.cause == Cause.EVICTED


def test_an_entry_that_seems_good_enough() -> None:
    """A server that decides otherwise than any known one: nobody knows why."""
    found = reason(
        ask("P", LRU),
        saved("Q"),
        ask("P again", LRU, LOOKED, *listed(("0x1", 404)), possible=400, state="P"),
    )
    assert found is not None
    assert found.cause == Cause.UNKNOWN


def test_a_slot_cleared_since_another_state_could_not_be_restored() -> None:
    failed = (" failed to restore state with size 9", "clearing prompt with 404 tokens")
    found = reason(
        ask("P", LRU),
        saved("Q"),
        ask("Q again", LIKE, LOOKED, TAKEN, *failed, possible=400, state="Q"),
    )
    assert found is not None
    assert found.cause == Cause.POOL_FULL
    assert "was in slot 0, which was cleared" in found.text


def test_two_slots_with_as_much_of_a_prompt_where_memory_fell_short() -> None:
    """The slot that was used is not to blame for being the first of the two."""
    row, lines = ask("P again", LIKE.replace("0.900", "1.000"), possible=400, state="P in 1")
    lines.insert(3, "slot f: id 0 | task 1 | forcing full prompt re-processing due to lack of")
    found = reason(ask("P in 0", LRU), ask("P in 1", LRU, slot=1), (row, lines))
    assert found == Reason(
        cause=Cause.NO_CHECKPOINT,
        text="the state of 'P in 1' is also in slot 0, and it has no checkpoint",
    )


def test_what_was_lost_and_what_was_reused_instead() -> None:
    both = ((Kind.LOST_REUSE, "lost"), (Kind.WRONG_ANSWER, "wrong"))
    found = reason(
        ask("P", LRU, scale=1.0),
        saved("Q"),
        ask("P again", LIKE, cache_n=17, possible=400, state="P", scale=1.0, failures=both),
    )
    assert found is not None
    assert found.cause == Cause.SLOT_KEEPS_ENOUGH
    assert "; and what was reused: kept from its slot: slot 0 had the state of 'Q'" in found.text
