"""Slots that are saved to files and restored, after a restart or into a live server.

A file that is whole brings back all of the conversation, to the last token. A file that is not, or
that another server wrote, is answered with an error that costs nobody anything (upstream #14434,
#27068). A file does not say under which adapters it was computed; an answer must still be right.

The prompt cache is off wherever a file is restored: it would make up for what that does not bring
back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import pytest

from harness.client import Client
from harness.errors import NotTestable
from harness.expect import Claim
from harness.history import common_prefix
from harness.ledger import Call
from harness.loaded import NO_FIELD, Lora
from harness.memory import Memory
from harness.models.synthetic.store import stranger
from harness.prompts import Prompt, Route, prose
from tests.cache.conftest import CACHE_RAM, Start, Topology
from tests.cache.damage import NOTICEABLE, flip_last_bit, replace_tokens

if TYPE_CHECKING:
    from harness.scenario import Scenario
    from harness.server.config import ConfigFields

P, Q, R = prose("P", 400), prose("Q", 400), prose("R", 400)
TAIL = " and then?"

TEXT_ONLY = pytest.mark.routes(Route.COMPLETION)
"""A file is the same file, whichever route filled the slot."""


CHANGED_FILES = pytest.mark.one_a_memory
"""Whether a file is taken is a matter of its form, not of what is in it."""


@pytest.fixture
def start_with_files(start: Start, slot_directory: Path) -> Start:
    """Scenarios with slot files and, unless they say otherwise, no prompt cache."""

    def start_with_files(
        adapters: Mapping[str, float] | None = None, **required: Unpack[ConfigFields]
    ) -> Scenario:
        fields: ConfigFields = {"cache_ram": 0, "slot_save_path": slot_directory, **required}
        return start(adapters, **fields)

    return start_with_files


@pytest.mark.parametrize("pinned", [True, False], ids=["id_slot", "any_slot"])
def test_restart(start_with_files: Start, topology: Topology, pinned: bool) -> None:
    """The point of slot files: the conversation goes on in a new process, in another slot."""
    last = topology.parallel - 1
    with start_with_files() as s:
        answer = s.ask("P", P, slot=0)
        s.save("save", slot=0, file="p")
        s.restart()
        s.restore("restore", slot=last, file="p")
        turn = P.then(answer.text, TAIL)
        s.ask("P, next turn", turn, slot=last if pinned else None, reuse=Claim.PROMISED)


@TEXT_ONLY
def test_same_prompt_after_restart(start_with_files: Start) -> None:
    """An answer is asked for again: of the state in the file the last tokens are not wanted."""
    with start_with_files() as s:
        s.ask("P", P, slot=0)
        s.save("save", slot=0, file="p")
        s.restart()
        s.restore("restore", slot=0, file="p")
        s.ask("P again", P, slot=0, reuse=Claim.PROMISED)


@TEXT_ONLY
def test_two_conversations(start_with_files: Start, topology: Topology) -> None:
    """Two files, restored in turn into one slot, or each into the other's."""
    p_slot, q_slot = (0, 1) if topology.parallel > 1 else (0, 0)
    with start_with_files() as s:
        p = s.ask("P", P, slot=p_slot)
        s.save("save P", slot=p_slot, file="p")
        q = s.ask("Q", Q, slot=q_slot)
        s.save("save Q", slot=q_slot, file="q")
        s.restart()
        s.restore("restore P", slot=q_slot, file="p")
        s.ask("P, next turn", P.then(p.text, TAIL), slot=q_slot, reuse=Claim.PROMISED)
        s.restore("restore Q", slot=p_slot, file="q")
        s.ask("Q, next turn", Q.then(q.text, TAIL), slot=p_slot, reuse=Claim.PROMISED)


@TEXT_ONLY
@pytest.mark.several_slots
def test_other_slots_stay(start_with_files: Start) -> None:
    """What is restored into one slot of a live server leaves the others as they are."""
    with start_with_files() as s:
        r = s.ask("R", R, slot=2)
        s.save("save R", slot=2, file="r")
        p = s.ask("P", P, slot=0)
        s.ask("Q", Q, slot=1)
        s.restore("restore R", slot=3, file="r")
        s.restore("restore R again", slot=1, file="r")
        s.ask("P, next turn", P.then(p.text, TAIL), slot=0, reuse=Claim.PROMISED)
        turn = R.then(r.text, TAIL)
        for slot in (1, 2, 3):
            s.ask(f"R in {slot}, next turn", turn, slot=slot, reuse=Claim.PROMISED)


@pytest.mark.several_slots
def test_idle_slot(start_with_files: Start) -> None:
    """A slot is saved after another one was used.

    With unified KV an idle slot is emptied into the prompt cache: the conversation is there and not
    in the slot. Who saves the slot wants the conversation.
    """
    with start_with_files(cache_ram=CACHE_RAM) as s:
        answer = s.ask("P", P, slot=0)
        s.ask("Q", Q, slot=1)
        s.save("save P", slot=0, file="p")
        s.restart(cache_ram=0)
        s.restore("restore P", slot=0, file="p")
        s.ask("P, next turn", P.then(answer.text, TAIL), slot=0, reuse=Claim.PROMISED)


@TEXT_ONLY
def test_empty_slot(start_with_files: Start) -> None:
    """Nothing is saved, and nothing restored: either may be refused, neither does harm."""
    with start_with_files() as s:
        if s.save("save nothing", slot=0, file="none"):
            s.restore("restore nothing", slot=0, file="none")
        answer = s.ask("P", P, slot=0)
        s.ask("P, next turn", P.then(answer.text, TAIL), slot=0, reuse=Claim.PROMISED)


@pytest.mark.parametrize(
    ("server_wide", "lora"), [(0.0, {"A": 0.5}), (0.5, NO_FIELD)], ids=["explicit", "server_wide"]
)
def test_same_adapter_after_restart(
    start_with_files: Start, server_wide: float, lora: Lora
) -> None:
    """The conversation goes on under the adapter it had."""
    with start_with_files({"A": server_wide}) as s:
        answer = s.ask("P", P, slot=0, lora=lora)
        s.save("save", slot=0, file="p")
        s.restart()
        s.restore("restore", slot=0, file="p")
        turn = P.then(answer.text, TAIL)
        s.ask("P, next turn", turn, slot=0, lora=lora, reuse=Claim.PROMISED)


@TEXT_ONLY
@pytest.mark.parametrize("lora", [{"A": 0.0}, NO_FIELD], ids=["explicit", "left_out"])
@pytest.mark.parametrize("live", [False, True], ids=["restart", "live"])
def test_other_adapter_than_saved(start_with_files: Start, live: bool, lora: Lora) -> None:
    """A file computed under an adapter is restored for a next turn without one.

    Into the slot of a new server, or into one that just answered without an adapter.
    """
    with start_with_files({"A": 0.0}) as s:
        answer = s.ask("P", P, slot=0, lora={"A": 1.0})
        s.save("save", slot=0, file="p")
        if live:
            s.ask("Q", Q, slot=0, lora={"A": 0.0})
        else:
            s.restart()
        s.restore("restore", slot=0, file="p")
        s.ask("P, no adapter", P.then(answer.text, TAIL), slot=0, lora=lora)


@TEXT_ONLY
@CHANGED_FILES
@pytest.mark.parametrize("damage", NOTICEABLE)
def test_damaged_file(start_with_files: Start, topology: Topology, damage: str) -> None:
    """A file that is not whole."""
    with start_with_files() as s:
        s.ask("R", R, slot=0)
        s.save("save R", slot=0, file="r")
        NOTICEABLE[damage](s.slot_file("r"))
        check_refused(s, "r", topology)


@TEXT_ONLY
@CHANGED_FILES
def test_file_of_another_model(start_with_files: Start, topology: Topology) -> None:
    """A file of a server with a model of other layers."""
    with start_with_files() as s:
        s.save_elsewhere(R, "r", model=stranger().path)
        check_refused(s, "r", topology)


@TEXT_ONLY
@CHANGED_FILES
@pytest.mark.memory(Memory.DENSE, Memory.SWA, Memory.HYBRID)
def test_file_of_another_cache_type(start_with_files: Start, topology: Topology) -> None:
    """A file of a server with another type of K and V."""
    with start_with_files(cache_type_k="f16", cache_type_v="f16") as s:
        s.save_elsewhere(R, "r", cache_type_k="f32", cache_type_v="f32")
        check_refused(s, "r", topology)


@TEXT_ONLY
@CHANGED_FILES
def test_file_of_a_larger_context(start_with_files: Start, topology: Topology) -> None:
    """A file with more tokens than the slot has room for."""
    context = 768 * topology.parallel
    with start_with_files(ctx_size=context, slots=True) as s:
        slots = s.act("GET /slots", lambda client, seconds: client.slots(timeout=seconds))
        characters_a_token = len(P.text) / len(s.tokens(P))
        larger = prose("larger", int((slots[0].n_ctx + 100) * characters_a_token))
        elsewhere = 2 * context
        fits = slots[0].n_ctx < len(s.tokens(larger)) < elsewhere
        s.require(fits, f"a prompt that fits into {elsewhere} tokens and not into a slot here")
        s.save_elsewhere(larger, "r", parallel=1, ctx_size=elsewhere)
        check_refused(s, "r", topology)


def check_refused(s: Scenario, file: str, topology: Topology) -> None:
    """Restoring the file is an error, after which every slot is as it was before.

    In a server whose slots are all in use, and in one that has just started.
    """
    conversations = {"P": P, **{f"Q{slot}": prose(f"Q{slot}", 200) for slot in (1, 2, 3)}}
    in_slots = list(conversations.items())[: topology.parallel]
    answers = [s.ask(name, text, slot=slot) for slot, (name, text) in enumerate(in_slots)]
    s.refused("restore", restoring(file), route=Call.RESTORE, slot=0)
    for slot, (name, text) in enumerate(in_slots):
        turn = text.then(answers[slot].text, TAIL)
        s.ask(f"{name}, next turn", turn, slot=slot, reuse=Claim.PROMISED)
    s.restart()
    s.refused("restore at first", restoring(file), route=Call.RESTORE, slot=0)
    s.ask("P at first", P, slot=0)


def restoring(file: str) -> Callable[[Client, float], object]:
    """The call that restores a file into slot 0."""
    return lambda client, seconds: client.restore_slot(0, file, timeout=seconds)


@TEXT_ONLY
@CHANGED_FILES
@pytest.mark.parametrize("asked", ["original", "changed"])
def test_changed_token(start_with_files: Start, asked: str) -> None:
    """A file that says of one token that it is another, which its KV was not computed from.

    Up to there all is right, whoever asks.
    """
    with start_with_files() as s:
        s.ask("P", P, slot=0)
        s.save("save", slot=0, file="p")
        changed = one_token_changed(s)
        tokens, others = s.tokens(P), s.tokens(changed)
        at = common_prefix(tokens, others)
        if not replace_tokens(s.slot_file("p"), tokens, others):
            raise NotTestable("needs a build whose slot files list their tokens")
        s.restart()
        s.restore("restore", slot=0, file="p", damaged_at=at)
        s.ask(asked, P if asked == "original" else changed, slot=0)


def one_token_changed(s: Scenario) -> Prompt:
    """P with another letter somewhere, and so with one other token."""
    changes = (Prompt((P.text[:at] + "?" + P.text[at + 1 :],)) for at in range(40, 300))
    found = next((changed for changed in changes if differs_by_one(s, changed)), P)
    s.require(found != P, "texts that differ by one token")
    return found


def differs_by_one(s: Scenario, changed: Prompt) -> bool:
    tokens, others = s.tokens(P), s.tokens(changed)
    apart = sum(token != other for token, other in zip(tokens, others, strict=False))
    return len(tokens) == len(others) and apart == 1


@TEXT_ONLY
@CHANGED_FILES
def test_changed_kv(start_with_files: Start, topology: Topology) -> None:
    """A bit of the KV is another: what is computed from it is wrong, and nobody can tell.

    So nothing is claimed of it. What comes after in the same slot is right.
    """
    last = topology.parallel - 1  # its KV ends the file, where slots have pools of their own
    with start_with_files() as s:
        answer = s.ask("P", P, slot=last)
        s.save("save", slot=last, file="p")
        flip_last_bit(s.slot_file("p"))
        s.restart()
        s.restore("restore", slot=last, file="p", damaged_at=-1)
        turn = P.then(answer.text, TAIL)
        s.ask("P, next turn", turn, slot=last, reuse=Claim.UNJUDGED)
        s.ask("Q", Q, slot=last)


@pytest.mark.slow
def test_restart_at_30000_tokens(start_long: Start, slot_directory: Path) -> None:
    """At the size that is worth a file."""
    long = prose("long", 30_000)
    with start_long(cache_ram=0, slot_save_path=slot_directory) as s:
        answer = s.ask("long", long)
        s.save("save", slot=0, file="long")
        s.restart()
        s.restore("restore", slot=0, file="long")
        s.ask("long, next turn", long.then(answer.text, TAIL), reuse=Claim.PROMISED)
