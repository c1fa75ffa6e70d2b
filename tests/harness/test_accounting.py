"""Each rule of accounting: kept by an honest reply, broken by one that is not."""

from __future__ import annotations

import pytest

from harness.accounting import (
    metrics_violations,
    restored_violations,
    slot_file_violations,
    violations,
)
from harness.expect import Kind
from harness.replies import Reply, SlotFile, Timings
from tests.harness.replying import completion, openai, token


@pytest.mark.parametrize("reply", [completion(), completion(cache_n=9, prompt_n=1), openai()])
def test_an_honest_reply_breaks_no_rule(reply: Reply) -> None:
    assert violations(reply, prompt_tokens=10) == ()


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (completion(cache_n=3, prompt_n=10, prompt_tokens=10), "cache_n 3 + prompt_n 10"),
        (completion(cache_n=1), "11 by the reply"),
        (completion(cache_n=10, prompt_n=0), "out of range"),
        (completion(cache_n=-1, prompt_n=11), "out of range"),
        (completion(tokens_cached=10), "tokens_cached 10"),
        (completion(tokens=(token(5), token(6))), "2 tokens were reported"),
        (openai(cached_tokens=3), "usage.cached_tokens 3"),
        (openai(completion_tokens=3), "usage.completion_tokens 3"),
    ],
)
def test_a_broken_rule_is_named(reply: Reply, words: str) -> None:
    (failure,) = violations(reply, prompt_tokens=10)
    assert failure.kind is Kind.ACCOUNTING
    assert words in failure.message


def test_fewer_tokens_than_were_asked_for() -> None:
    (failure,) = violations(completion(predicted_n=1), prompt_tokens=10, n_predict=4)
    assert failure.message == "4 tokens were asked for, predicted_n 1"


def test_a_context_shift_drops_tokens_from_the_slot() -> None:
    assert violations(completion(tokens_cached=5, truncated=True), prompt_tokens=10) == ()


def test_another_slot_than_asked_for() -> None:
    (failure,) = violations(completion(id_slot=3), prompt_tokens=10, id_slot=0)
    assert failure.message == "slot 0 was asked for, slot 3 answered"
    assert violations(completion(id_slot=3), prompt_tokens=10) == ()


SAVED = SlotFile(id_slot=1, n_tokens=604, n_bytes=9000, ms=1.0)


@pytest.mark.parametrize("held", [604, 700])
def test_an_honest_save(held: int) -> None:
    assert slot_file_violations(SAVED, id_slot=1, held=held, file_bytes=9000) == ()


@pytest.mark.parametrize(
    ("id_slot", "held", "file_bytes", "words"),
    [
        (0, 604, 9000, "slot 0 was to be saved, slot 1 was"),
        (1, 603, 9000, "n_saved 604, but the slot was left with 603 tokens"),
        (1, 604, 8999, "n_written 9000, but the file has 8999 bytes"),
    ],
)
def test_a_save_that_is_not(id_slot: int, held: int, file_bytes: int, words: str) -> None:
    (failure,) = slot_file_violations(SAVED, id_slot=id_slot, held=held, file_bytes=file_bytes)
    assert (failure.kind, failure.message) == (Kind.ACCOUNTING, words)


@pytest.mark.parametrize("saved", [SAVED, None])
def test_an_honest_restore(saved: SlotFile | None) -> None:
    assert restored_violations(SAVED, id_slot=1, saved=saved) == ()


@pytest.mark.parametrize(
    ("restored", "words"),
    [
        (SlotFile(0, 604, 9000, 1.0), "slot 1 was to be restored, slot 0 was"),
        (SlotFile(1, 603, 9000, 1.0), "n_restored 603 is not n_saved 604"),
        (SlotFile(1, 604, 8999, 1.0), "n_read 8999 is not n_written 9000"),
    ],
)
def test_a_restore_that_is_not(restored: SlotFile, words: str) -> None:
    (failure,) = restored_violations(restored, id_slot=1, saved=SAVED)
    assert (failure.kind, failure.message) == (Kind.ACCOUNTING, words)


REPLIES = [Timings(0, 600, 4, 1.0, 1.0), Timings(600, 1, 4, 1.0, 1.0)]
METRICS = {
    "prompt_tokens_total": 601.0,
    "prompt_tokens_cached_total": 600.0,
    "tokens_predicted_total": 8.0,
}


def test_honest_metrics() -> None:
    assert metrics_violations(METRICS, REPLIES) == ()
    assert metrics_violations(dict.fromkeys(METRICS, 0.0), []) == ()


def test_builds_that_do_not_count_what_was_reused() -> None:
    earlier = {k: v for k, v in METRICS.items() if k != "prompt_tokens_cached_total"}
    assert metrics_violations(earlier, REPLIES) == ()


@pytest.mark.parametrize("name", METRICS)
def test_a_counter_that_is_off(name: str) -> None:
    (failure,) = metrics_violations({**METRICS, name: METRICS[name] + 1}, REPLIES)
    assert failure.message.startswith(f"{name} is {METRICS[name] + 1:g} in /metrics")


def test_a_counter_that_is_not_there() -> None:
    (failure,) = metrics_violations({k: v for k, v in METRICS.items() if "pred" not in k}, REPLIES)
    assert failure.message == "/metrics has no tokens_predicted_total"
