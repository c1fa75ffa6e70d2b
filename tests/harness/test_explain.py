"""Reasons on a real server: for each a scenario that shows it, and one that almost does."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import pytest

from harness.bench import Bench
from harness.builds.build import Build
from harness.cause import Cause
from harness.client import Client
from harness.ledger import RequestRow
from harness.loaded import NO_FIELD
from harness.models.synthetic.store import generated
from harness.prompts import Prompt, Route, prose
from harness.scenario import Scenario
from harness.server.config import ConfigFields
from harness.server.events import Unrecognised
from harness.server.guard import Guard
from harness.server.log_reader import events
from harness.stage import ScenarioFailed
from tests.cache.damage import cut_last_byte, empty_cells
from tests.cache.test_checkpoints import marked

P, Q, R = prose("P", 400), prose("Q", 400), prose("R", 400)
HEAD = prose("head", 180).text

Run = Callable[..., RequestRow]
"""Runs steps on a fresh server; the row of the last one."""
Steps = Callable[[Scenario], object]


@pytest.fixture
def run(llama_bench: Bench, tmp_path: Path) -> Run:
    """Runs steps on a server with the first generated model."""
    return runner(llama_bench, tmp_path)


@pytest.fixture(scope="module")
def other_benches(
    llama_build: Build, llama_guard: Guard, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Bench]]:
    """Benches with other generated models, by name."""
    benches: dict[str, Bench] = {}

    def bench(name: str) -> Bench:
        if name not in benches:
            benches[name] = Bench(
                program=llama_build.program,
                model=generated(name),
                guard=llama_guard,
                directory=tmp_path_factory.mktemp(name),
                seconds=60.0,
            )
        return benches[name]

    yield bench
    for made in benches.values():
        made.close()


def runner(bench: Bench, directory: Path) -> Run:
    def run(
        steps: Steps,
        *,
        route: Route = Route.COMPLETION,
        words: tuple[str, ...] = (),
        seconds: float = 30.0,
        **fields: Unpack[ConfigFields],
    ) -> RequestRow:
        adapters = {"A": 0.0}
        (directory / "slots").mkdir(exist_ok=True)
        required: ConfigFields = {
            "parallel": 1,
            "cache_ram": 64,
            "slot_save_path": directory / "slots",
            **fields,
        }
        scenario = Scenario(
            bench=bench,
            config=replace(bench.config(adapters, **required), extra_args=words),
            adapters=adapters,
            route=route,
            directory=directory,
            seconds=seconds,
        )
        with suppress(ScenarioFailed), scenario as s:
            steps(s)
        scenario.explain()
        found = events(scenario.server.log.path.read_text(errors="replace").splitlines())
        assert not [event for event in found if isinstance(event, Unrecognised)]
        return scenario.steps[-1].row

    return run


def check(row: RequestRow, cause: Cause, *words: str) -> None:
    """A step has this reason, with these words."""
    assert row.reason is not None
    assert row.reason.cause == cause, row.reason
    for word in words:
        assert word in row.reason.text


def check_none(row: RequestRow) -> None:
    """A step reused all it might, and needs no reason."""
    assert (row.read_again, row.reason) == (0, None)


def asked(*texts: str | Prompt, lora: float = 0.0) -> Steps:
    """Asks these in turn."""

    def steps(s: Scenario) -> None:
        for number, text in enumerate(texts, 1):
            prompt = text if isinstance(text, Prompt) else Prompt((text,))
            s.ask(f"{number}", prompt, lora={"A": lora})

    return steps


def pinned(*texts: tuple[Prompt, int]) -> Steps:
    """Asks these in turn, each in a slot."""

    def steps(s: Scenario) -> None:
        for number, (prompt, slot) in enumerate(texts, 1):
            s.ask(f"{number}", prompt, slot=slot)

    return steps


def test_nothing_similar(run: Run) -> None:
    row = run(asked(P, Q), parallel=4)
    check(row, Cause.NOTHING_SIMILAR, "'1', shares 1 of the prompt's 401 tokens")
    assert row.read_again == 1
    similar = run(asked(HEAD + P.text, HEAD + Q.text), parallel=4)
    check_none(similar)


def test_the_slot_keeps_enough(run: Run) -> None:
    """A title request leaves a slot whose larger part the next turn has, too."""
    talk = HEAD + P.text
    row = run(asked(talk, HEAD + prose("title", 40).text, talk + "?"))
    check(row, Cause.SLOT_KEEPS_ENOUGH, "'1' was in the prompt cache", "that of '2', 224 tokens")
    assert row.read_again == 581 - 181
    longer = run(asked(talk, HEAD + prose("title", 200).text, talk + "?"))
    check_none(longer)


def test_a_pinned_slot_that_is_empty(run: Run) -> None:
    row = run(pinned((P, 0), (Q, 0), (P, 1)), parallel=2)
    check(row, Cause.PINNED, "'1' was in the prompt cache", "slot 1 was asked for, and empty")
    used = run(pinned((P, 0), (Q, 0), (P, 0)), parallel=2)
    check_none(used)


def test_a_pinned_slot_that_is_another_one(run: Run) -> None:
    row = run(pinned((P, 0), (P, 1)), parallel=2, cache_ram=0)
    check(row, Cause.OTHER_SLOT, "in slot 0, and slot 1 was asked for")
    same = run(pinned((P, 0), (P, 0)), parallel=2, cache_ram=0)
    check_none(same)


def test_similarity_is_off(run: Run) -> None:
    def steps(slot: int | None) -> Steps:
        def asks(s: Scenario) -> None:
            asked(P, Q)(s)
            s.ask("P again", P, slot=slot)

        return asks

    row = run(steps(0), slot_prompt_similarity=0.0)
    check(row, Cause.SIMILARITY_OFF, "'1' was in the prompt cache", "nothing compared")
    unpinned = run(steps(None), slot_prompt_similarity=0.0)
    check_none(unpinned)


def test_below_the_threshold_of_the_prompt_cache(run: Run) -> None:
    """Of an entry of which less than a quarter would be kept nothing is used."""
    row = run(asked(P, Q, P.text[:80]))
    # A build that does not log what it compares is not known to share the last token, too.
    check(row, Cause.BELOW_THRESHOLD, " of its 404 tokens, f_keep ")
    assert row.reason is not None
    assert re.search("80 of .* 0.198 < 0.25|81 of .* 0.200 < 0.25", row.reason.text)
    more = run(asked(P, Q, P.text[:120]))
    check_none(more)


def test_another_entry_is_better_in_one_way(run: Run) -> None:
    """Of two entries the older is taken: less of the prompt, but a larger part of the entry."""
    prompt = HEAD + prose("rest", 300).text
    short, long = prompt[:140], prompt[:400] + prose("other end", 200).text
    before = (long, Q, short, R, long + "?", Q)
    row = run(asked(*before, prompt))
    check(row, Cause.BELOW_THRESHOLD, "'5' was in the prompt cache", "that of '3', 144 tokens, was")
    assert row.read_again == 401 - 141
    alone = run(asked(*(text for text in before if text is not short), prompt))
    check_none(alone)


def test_an_entry_that_is_better_in_one_way_only(run: Run) -> None:
    """More of the prompt is in an entry than in the slot, but a smaller part of the entry."""
    prompt = HEAD + prose("rest", 120).text
    in_slot = HEAD + prose("slot", 216).text  # the prompt has 181 of its 400 tokens
    entry = prompt[:270] + prose("entry", 404).text  # 271 of 678
    row = run(asked(entry, in_slot, prompt))
    check(row, Cause.BELOW_THRESHOLD, "not both better than the slot's 0.45")
    smaller = run(asked(prompt[:270] + prose("entry", 250).text, in_slot, prompt))
    check_none(smaller)


def test_discarded_for_adapters(run: Run) -> None:
    def steps(between: float) -> Steps:
        def asks(s: Scenario) -> None:
            s.ask("P", P, lora={"A": 0.5})
            s.ask("Q", Q, lora={"A": between})
            s.ask("P again", P, lora={"A": 0.5})

        return asks

    row = run(steps(0.0))
    check(
        row,
        Cause.DISCARDED,
        "came from the prompt cache",
        "'Q', had no adapter, and this has A at 0.5",
    )
    assert row.read_again == 400
    same = run(steps(0.5))
    check_none(same)


def test_discarded_in_a_slot_that_had_no_adapters_yet(run: Run) -> None:
    row = run(asked(P, Q, P, lora=0.5), parallel=4, kv_unified=True)
    check(
        row, Cause.DISCARDED, "came from the prompt cache", "had had no request, and so no adapters"
    )
    apart = run(asked(P, Q, P, lora=0.5), parallel=4, kv_unified=False)
    check_none(apart)


def test_no_checkpoint(other_benches: Callable[[str], Bench], tmp_path: Path) -> None:
    run = runner(other_benches("mamba2"), tmp_path)
    row = run(asked(P, P.text[:200] + Q.text))
    check(row, Cause.NO_CHECKPOINT, "in slot 0, and none of its 2 checkpoints could be used")
    near = run(asked(P, P.text[:399] + Q.text))
    check(near, Cause.NO_CHECKPOINT, "was resumed at its checkpoint after 397 of 400 tokens")

    def appended(s: Scenario) -> None:
        answer = s.ask("P", P)
        s.ask("next turn", P.then(answer.text, "?"))

    append = run(appended)
    check_none(append)


def test_no_checkpoint_of_what_was_restored(
    other_benches: Callable[[str], Bench], tmp_path: Path
) -> None:
    run = runner(other_benches("mamba2"), tmp_path)
    row = run(asked(P, Q, P.text[:300] + R.text))
    check(row, Cause.NO_CHECKPOINT, "'1' came from the prompt cache, and none of its 2 checkpoints")
    near = run(asked(P, Q, P.text[:399] + R.text))
    check(near, Cause.NO_CHECKPOINT, "and was resumed at its checkpoint after 397 of 400 tokens")


def test_a_slot_file_has_no_checkpoints(
    other_benches: Callable[[str], Bench], tmp_path: Path
) -> None:
    run = runner(other_benches("mamba2"), tmp_path)

    def steps(again: bool) -> Steps:
        def asks(s: Scenario) -> None:
            answer = s.ask("P", P)
            s.save("save", slot=0, file="p")
            s.restart()
            s.restore("restore", slot=0, file="p")
            s.ask("last", P if again else P.then(answer.text, "?"))

        return asks

    row = run(steps(True), cache_ram=0)
    check(row, Cause.NO_CHECKPOINT, "'P' was in slot 0, and a slot file has no checkpoints")
    append = run(steps(False), cache_ram=0)
    check_none(append)


def test_consumed_and_cleared(run: Run) -> None:
    """An entry is restored for a request of other adapters than the slot's last one."""

    def steps(other: float) -> Steps:
        def asks(s: Scenario) -> None:
            for name, prompt, scale in (("P", P, 0.5), ("Q", Q, 0.5), ("other", P, other)):
                s.ask(name, prompt, lora={"A": scale})
            s.ask("P again", P, lora={"A": 0.5})

        return asks

    row = run(steps(1.0))
    check(row, Cause.CONSUMED, "'P' (404 tokens) was restored into slot 0 for 'other', and cleared")
    same = run(steps(0.5))
    check_none(same)


def test_consumed(run: Run) -> None:
    """A fork takes the entry, and keeps a part of it."""
    row = run(asked(P, Q, P.text[:200] + R.text[:100], P))
    check(row, Cause.CONSUMED, "'1' (404 tokens) was restored into slot 0 for '3', which kept 201")
    assert row.read_again == 400 - 201
    far = run(asked(P, Q, P.text[:80] + R.text[:100], P))
    check_none(far)


def test_evicted(run: Run) -> None:
    """A state of 400 tokens has 0.2 MiB, so that 1 MiB has room for four."""
    others = [prose(f"other {number}", 400) for number in range(6)]
    row = run(asked(P, *others, P), cache_ram=1)
    check(row, Cause.EVICTED, "'1' (404 tokens) was the oldest entry when '6' came", "1 MiB")
    by_itself = run(asked(P, *others[:4], P), cache_ram=1)
    check(by_itself, Cause.EVICTED, "'1' (404 tokens) was the oldest entry when '6' came")
    fewer = run(asked(P, *others[:3], P), cache_ram=1)
    check_none(fewer)


def test_the_slot_was_taken(run: Run) -> None:
    """Of a slot of which half is kept the rest is not saved."""
    fork = prose("fork", 200).text
    row = run(asked(P, P.text[:210] + fork, P))
    check(
        row,
        Cause.SLOT_TAKEN,
        "'1' (404 tokens), went to '2', which kept 211 of them",
        "f_keep 0.522",
    )
    half = run(asked(P, P.text[:190] + fork, P))
    check_none(half)


def test_cleared_for_other_adapters(run: Run) -> None:
    def steps(other: float) -> Steps:
        def asks(s: Scenario) -> None:
            for number, scale in enumerate((1.0, other, 1.0), 1):
                s.ask(f"{number}", P, lora={"A": scale})

        return asks

    check(
        run(steps(0.5)),
        Cause.SLOT_TAKEN,
        "went to '2', and was cleared for A at 0.5 instead of A at 1",
    )
    same = run(steps(1.0))
    check_none(same)


def erase(client: Client, seconds: float) -> object:
    return client.erase_slot(0, timeout=seconds)


def test_an_idle_slot_that_was_cleared(run: Run) -> None:
    def steps(*before: Prompt) -> Steps:
        def asks(s: Scenario) -> None:
            asked(*before)(s)
            s.act("erase", erase, route="erase")
            s.ask("P again", P)

        return asks

    check(run(steps(P)), Cause.CLEARED, "'1' (404 tokens), was cleared when 'erase' came")
    saved = run(steps(P, Q))
    check_none(saved)


def test_a_slot_file_is_restored_over_a_state(run: Run) -> None:
    def steps(slot: int) -> Steps:
        def asks(s: Scenario) -> None:
            s.ask("Q", Q, slot=0)
            s.save("save", slot=0, file="q")
            s.ask("P", P, slot=1)
            s.restore("restore", slot=slot, file="q")
            s.ask("P again", P)

        return asks

    fields: ConfigFields = {"parallel": 2, "kv_unified": False, "cache_ram": 64}
    check(run(steps(1), **fields), Cause.SLOT_TAKEN, "was given the slot file of 'restore'")
    other = run(steps(0), **fields)
    check_none(other)


def test_a_request_that_wants_nothing_cached_takes_the_slot(run: Run) -> None:
    """It shares enough of the slot that nothing is saved, and keeps nothing."""

    def steps(cached: bool) -> Steps:
        def asks(s: Scenario) -> None:
            s.ask("P", P)
            s.ask("probe", P + "?", cache_prompt=cached)
            s.ask("P again", P)

        return asks

    row = run(steps(False))
    assert row.reason is None  # the probe's own state has all of it
    fork = prose("fork", 200).text

    def forked(cached: bool) -> Steps:
        def asks(s: Scenario) -> None:
            s.ask("P", P)
            s.ask("probe", Prompt((P.text[:210] + fork,)), cache_prompt=cached)
            s.ask("P again", P)

        return asks

    row = run(forked(False))
    check(row, Cause.NEVER_WRITTEN, "went to 'probe', whose cache_prompt is false")
    check(run(forked(True)), Cause.SLOT_TAKEN)


def test_the_context_was_shifted(run: Run) -> None:
    def steps(tokens: int) -> Steps:
        def asks(s: Scenario) -> None:
            s.ask("P", P, n_predict=tokens)
            s.ask("P again", P)

        return asks

    shifting = ("--context-shift",)
    row = run(steps(200), words=shifting, ctx_size=512)
    check(row, Cause.CONTEXT_SHIFTED, "'P' was in slot 0, and its beginning had been dropped")
    roomy = run(steps(50), words=shifting, ctx_size=512)
    check_none(roomy)


def test_too_large_for_the_prompt_cache(run: Run) -> None:
    """A state of 2,500 tokens has 1.3 MiB."""
    row = run(asked(prose("long", 2500), Q, prose("long", 2500)), cache_ram=1)
    check(row, Cause.NEVER_WRITTEN, "went to '2'", "exceeds cache size limit 1.000")
    shorter = run(asked(prose("long", 1500), Q, prose("long", 1500)), cache_ram=1)
    check_none(shorter)


def test_a_request_that_is_no_completion_saves_nothing(run: Run) -> None:
    def embed(client: Client, seconds: float) -> None:
        client.embedding(Q.text, timeout=seconds)

    def steps(*before: Prompt) -> Steps:
        def asks(s: Scenario) -> None:
            asked(*before)(s)
            s.act("embed", embed, route="embedding", task=True)
            s.ask("P again", P)

        return asks

    row = run(steps(P), embeddings=True)
    check(row, Cause.NEVER_WRITTEN, "went to 'embed', which is no completion")
    saved = run(steps(P, Q), embeddings=True)
    check_none(saved)


def test_a_slot_file_of_an_empty_slot(run: Run) -> None:
    def steps(slot: int) -> Steps:
        def asks(s: Scenario) -> None:
            s.ask("P", P, slot=0)
            s.ask("Q", Q, slot=slot)
            s.save("save", slot=0, file="p")
            s.restart(cache_ram=0)
            s.restore("restore", slot=0, file="p")
            s.ask("P again", P if slot else Q, slot=0)

        return asks

    row = run(steps(1), parallel=2, kv_unified=True)
    check(row, Cause.NEVER_WRITTEN, "slot file with the state of 'P' has 0 tokens")
    full = run(steps(0), parallel=2, kv_unified=True)
    check_none(full)


def restore_nothing(client: Client, seconds: float) -> object:
    return client.restore_slot(0, "none", timeout=seconds)


def test_a_refused_slot_file(run: Run) -> None:
    def steps(refused: bool) -> Steps:
        def asks(s: Scenario) -> None:
            s.ask("P", P)
            if refused:
                s.refused("restore", restore_nothing, route="restore", slot=0)
            else:
                s.save("save", slot=0, file="p")
            s.ask("P again", P)

        return asks

    check(
        run(steps(True), cache_ram=0),
        Cause.FILE_REFUSED,
        "the slot file of 'restore', which was refused",
    )
    kept = run(steps(False), cache_ram=0)
    check_none(kept)


def test_the_pool_is_full(run: Run) -> None:
    """Four slots share 1,024 cells: the third state needs the room of the first."""
    row = run(
        pinned((P, 0), (Q, 1), (R, 2), (P, 0)),
        parallel=4,
        kv_unified=True,
        cache_ram=0,
        ctx_size=1024,
    )
    check(row, Cause.POOL_FULL, "'1' (404 tokens), was purged when '3' came")
    roomy = run(
        pinned((P, 0), (Q, 1), (R, 2), (P, 0)),
        parallel=4,
        kv_unified=True,
        cache_ram=0,
        ctx_size=2048,
    )
    check_none(roomy)


def test_the_server_slept(run: Run) -> None:
    def steps(sleep: bool) -> Steps:
        def asks(s: Scenario) -> None:
            s.ask("P", P)
            if sleep:
                s.act("sleep", lambda _, seconds: wait_for_sleep(s, seconds))
            s.ask("P again", P)

        return asks

    def wait_for_sleep(s: Scenario, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while "sleeping state" not in s.server.log.path.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    sleeping = ("--sleep-idle-seconds", "1")
    check(run(steps(True), words=sleeping), Cause.SLEPT, "'P'")
    awake = run(steps(False), words=sleeping)
    check_none(awake)


def test_not_asked_for(run: Run) -> None:
    def steps(*before: Prompt) -> Steps:
        def asks(s: Scenario) -> None:
            asked(*before)(s)
            s.ask("P, not cached", P, cache_prompt=False)

        return asks

    row = run(steps(P))
    check(row, Cause.NOT_ASKED, "'1'")
    assert row.read_again == 0
    assert run(steps()).reason is None


def test_reused_from_the_slot_under_other_adapters(run: Run) -> None:
    def steps(scale: float) -> Steps:
        def asks(s: Scenario) -> None:
            s.ask("P", P, lora={"A": scale})
            s.ask("none named", P, lora=NO_FIELD)

        return asks

    row = run(steps(1.0))
    check(row, Cause.FROM_SLOT, "'P', computed under A at 1, and here is no adapter")
    assert run(steps(0.0)).reason is None


def test_reused_from_the_prompt_cache_under_other_adapters(run: Run) -> None:
    def steps(before: float) -> Steps:
        def asks(s: Scenario) -> None:
            s.ask("P", P, lora={"A": before})
            s.ask("Q", Q, lora={"A": 0.0})
            s.ask("P again", P, lora={"A": 0.0})

        return asks

    row = run(steps(1.0))
    check(row, Cause.FROM_CACHE, "'P', computed under A at 1, and here is no adapter")
    assert run(steps(0.0)).reason is None


def test_reused_from_a_slot_file_under_other_adapters(run: Run) -> None:
    def steps(before: float) -> Steps:
        def asks(s: Scenario) -> None:
            s.ask("P", P, lora={"A": before})
            s.save("save", slot=0, file="p")
            s.restart()
            s.restore("restore", slot=0, file="p")
            s.ask("P again", P, lora=NO_FIELD)

        return asks

    row = run(steps(1.0), cache_ram=0)
    check(row, Cause.FROM_FILE, "'P', computed under A at 1, and here is no adapter")
    assert run(steps(0.0), cache_ram=0).reason is None


def test_moved_by_cache_reuse(other_benches: Callable[[str], Bench], tmp_path: Path) -> None:
    run = runner(other_benches("mamba2"), tmp_path)
    texts = HEAD[:100] + "#" * 300 + Q.text, HEAD[:100] + Q.text
    row = run(asked(*texts), cache_reuse=64, ubatch_size=512)
    check(row, Cause.SHIFTED, "400 tokens were moved")
    check(run(asked(*texts), ubatch_size=512), Cause.NO_CHECKPOINT)


def test_reused_through_another_request(run: Run) -> None:
    """What a stale state was reused for is stale as well, whatever that one's own adapters."""

    def steps(scale: float) -> Steps:
        def asks(s: Scenario) -> None:
            s.ask("P", P, lora={"A": scale})
            s.ask("none", P, lora=NO_FIELD)
            s.ask("none again", P, lora=NO_FIELD)
            s.ask("none once more", P, lora=NO_FIELD)

        return asks

    row = run(steps(1.0))
    check(row, Cause.FROM_SLOT, "'none again', computed by 'P' under A at 1, and here is no")
    assert run(steps(0.0)).reason is None


def test_taken_though_not_whole(run: Run) -> None:
    def steps(damage: Callable[[Path], None]) -> Steps:
        def asks(s: Scenario) -> None:
            s.ask("P", P)
            s.save("save", slot=0, file="p")
            damage(s.slot_file("p"))
            s.refused(
                "restore",
                lambda client, seconds: client.restore_slot(0, "p", timeout=seconds),
                route="restore",
                slot=0,
            )

        return asks

    check(run(steps(empty_cells)), Cause.ACCEPTED)
    assert run(steps(Path.unlink)).reason is None
    check(run(steps(cut_last_byte)), Cause.ENDED, "GGML_ASSERT(nread <= state_size) failed")


def test_resumed_at_a_checkpoint(other_benches: Callable[[str], Bench], tmp_path: Path) -> None:
    """As `test_edited_message` shows it: a window that was restored loses a part of itself."""
    run = runner(other_benches("gemma3"), tmp_path)
    first = prose("message", 205).text + "#" * 40 + prose("1", 55).text
    messages = [first, marked("message 2", 300), marked("message 3", 300)]

    def steps(edited: int) -> Steps:
        def asks(s: Scenario) -> None:
            chats, said = [Prompt((messages[0],))], []
            for turn, message in enumerate((*messages[1:], ""), 1):
                said.append(s.ask(f"turn {turn}", chats[-1], slot=0).text)
                chats.append(chats[-1].then(said[-1], message))
            text = prose("edited", 300).text
            s.ask("edited", chats[edited - 2].then(said[edited - 2], text), slot=0)

        return asks

    row = run(steps(2), route=Route.CHAT, checkpoint_min_step=0)
    check(row, Cause.AT_CHECKPOINT, "slot 0 had the state of 'turn 3', resumed at its checkpoint")
    last = run(steps(3), route=Route.CHAT, checkpoint_min_step=0)
    assert last.failures == ()
    check(last, Cause.NO_CHECKPOINT, "'turn 3' was in slot 0, and was resumed at its checkpoint")


def test_refused(run: Run) -> None:
    def steps(action: Callable[[Client, float], object]) -> Steps:
        return lambda s: s.act("act", action)

    check(run(steps(restore_nothing)), Cause.REFUSED, "HTTP 400")
    assert run(steps(lambda client, seconds: client.slots(timeout=seconds))).reason is None


def test_no_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.server.process._STOP_SECONDS", 0.1)  # a stopped one ignores TERM

    def steps(stopped: bool) -> Steps:
        def asks(s: Scenario) -> None:
            if stopped:
                os.kill(s.server.pid, signal.SIGSTOP)
            s.act("slots", lambda client, seconds: client.slots(timeout=seconds))

        return asks

    check(run(steps(True), seconds=0.5), Cause.NO_ANSWER, "did not answer within 0.5 s")
    assert run(steps(False)).reason is None
