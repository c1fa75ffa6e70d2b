"""Short requests between the turns of a conversation must not cost it its state.

A health check shares with a conversation what the chat template writes before all else, and that
is enough to be given the conversation's slot. A request for a title or a summary shares the system
prompt, or the whole conversation. Whatever a probe puts in the slot, the next turn is to find the
conversation again (upstream #28276, #22083; `--cache-ram` keeps it).

Each scenario first makes sure from token counts that the probe is of the kind it says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.client import Options
from harness.expect import Claim
from harness.history import common_prefix
from harness.ledger import Purpose
from harness.prompts import Prompt, Route, prose
from tests.cache.conftest import SIMILAR, Start

if TYPE_CHECKING:
    from harness.scenario import Scenario

pytestmark = [pytest.mark.one_a_memory]  # it is about which slot is used

WHOLE = 0.9
"""A conversation of which more than this is shared goes on; the end may be tokenized otherwise."""
KEPT = 0.5
"""A slot of which less than this would be kept is saved, and a better state looked for."""

TEMPLATE_HEAD = "<|user|>"
"""What completions start with, as chats do by their template."""
SYSTEM = prose("system", 180).text
MORE = " and then?"
"""What the user says in the next turn."""


IDLE_SLOTS = pytest.mark.parametrize("idle_slots", [True, False], ids=["idle", "noidle"])
"""Whether idle slots are saved to the prompt cache: `--cache-idle-slots` on and off."""


def headed(route: Route, text: str) -> Prompt:
    """A conversation that starts like any other on this route, and only so."""
    return Prompt(((TEMPLATE_HEAD if route is Route.COMPLETION else "") + text,))


def talk(route: Route) -> Prompt:
    """The first turn of a conversation."""
    return headed(route, prose("talk", 400).text)


def health_check(route: Route, number: int = 1) -> Prompt:
    """A short request, two in five of whose tokens are those that all prompts start with."""
    text = f"ping {number % 3}"
    return headed(route, text if route is Route.CHAT else text + ", alive?")


def require_health_check(s: Scenario, conversation: Prompt, probe: Prompt) -> None:
    """The probe is taken for a continuation, and shares almost nothing else."""
    shared, length = shares(s, conversation, probe), len(s.tokens(probe))
    s.require(shared > SIMILAR * length, f"a probe that shares a tenth, not {shared} of {length}")
    length = len(s.tokens(conversation))
    s.require(shared < SIMILAR * length, f"a conversation of more than {length} tokens")


def shares(s: Scenario, one: Prompt, other: Prompt) -> int:
    """How many tokens two prompts share at their beginning."""
    return common_prefix(s.tokens(one), s.tokens(other))


@IDLE_SLOTS
def test_health_check(start: Start, route: Route, idle_slots: bool) -> None:
    """One probe between two turns."""
    conversation, probe = talk(route), health_check(route)
    with start(cache_idle_slots=idle_slots) as s:
        require_health_check(s, conversation, probe)
        answer = s.ask("turn 1", conversation)
        s.ask("probe", probe, purpose=Purpose.PROBE)
        s.ask("turn 2", conversation.then(answer.text, MORE), reuse=Claim.PROMISED)


def test_health_checks_in_a_row(start: Start, route: Route) -> None:
    """Several probes arrive between two turns: more than there are slots."""
    conversation = talk(route)
    with start() as s:
        answer = s.ask("turn 1", conversation)
        for number in range(6):
            require_health_check(s, conversation, health_check(route, number))
            s.ask(f"probe {number + 1}", health_check(route, number), purpose=Purpose.PROBE)
        s.ask("turn 2", conversation.then(answer.text, MORE), reuse=Claim.PROMISED)


def test_health_check_at_every_turn(start: Start, route: Route) -> None:
    """A conversation of ten turns; each finds all of the turns before."""
    conversation = talk(route)
    with start() as s:
        for turn in range(1, 11):
            reuse = Claim.ALLOWED if turn == 1 else Claim.PROMISED
            answer = s.ask(f"turn {turn}", conversation, reuse=reuse)
            require_health_check(s, conversation, health_check(route, turn))
            s.ask(f"probe {turn}", health_check(route, turn), purpose=Purpose.PROBE)
            conversation = conversation.then(answer.text, prose(f"turn {turn}", 40).text)


def test_health_check_that_is_not_to_be_cached(start: Start, route: Route) -> None:
    """`cache_prompt: false` and a single token, as a client asks that wants no conversation."""
    conversation, probe = talk(route), health_check(route)
    with start() as s:
        require_health_check(s, conversation, probe)
        answer = s.ask("turn 1", conversation)
        s.ask("probe", probe, cache_prompt=False, n_predict=1, purpose=Purpose.PROBE)
        s.ask("turn 2", conversation.then(answer.text, MORE), reuse=Claim.PROMISED)


def test_embedding_request(start: Start, route: Route) -> None:
    """A text to be embedded has nothing to do with the conversation, but is given a slot too."""
    conversation, text = talk(route), prose("embed", 60).text
    with start(embeddings=True) as s:
        answer = s.ask("turn 1", conversation)
        s.act(
            "embed",
            lambda client, seconds: client.embedding(text, timeout=seconds),
            route="embedding",
            task=True,
        )
        s.ask("turn 2", conversation.then(answer.text, MORE), reuse=Claim.PROMISED)


def test_health_check_without_a_prompt_cache(start: Start, route: Route) -> None:
    """Control: with nowhere else to keep it, what the probe displaces is lost.

    Only the head is left, and exactly that. Slot 0 is asked for, so that it is known where the
    probe goes.
    """
    conversation, probe = talk(route), health_check(route)
    with start(cache_ram=0) as s:
        require_health_check(s, conversation, probe)
        answer = s.ask("turn 1", conversation, slot=0)
        s.ask("probe", probe, slot=0, purpose=Purpose.PROBE)
        turn = conversation.then(answer.text, MORE)
        s.ask("turn 2", turn, slot=0, reuse=Claim.PROMISED)


@IDLE_SLOTS
def test_title_request(start: Start, idle_slots: bool) -> None:
    """A probe with the same system prompt, which is most of what it leaves in the slot.

    The next turn shares enough with it to be given that slot, and the slot would be kept: no better
    state is looked for.
    """
    conversation = prose("talk", 400).under(SYSTEM)
    probe = prose("title", 40).under(SYSTEM)
    with start(cache_idle_slots=idle_slots) as s:
        head = require_title_request(s, conversation, probe)
        s.require(head < KEPT * len(s.tokens(conversation)), "a system prompt of less than half")
        answer = s.ask("turn 1", conversation)
        s.ask("probe", probe, purpose=Purpose.PROBE)
        s.ask("turn 2", conversation.then(answer.text, MORE), reuse=Claim.PROMISED)


@IDLE_SLOTS
def test_title_request_early(start: Start, idle_slots: bool) -> None:
    """The same while the system prompt is most of the conversation: the rest is not even saved."""
    conversation = prose("talk", 120).under(SYSTEM)
    probe = prose("title", 40).under(SYSTEM)
    with start(cache_idle_slots=idle_slots) as s:
        head = require_title_request(s, conversation, probe)
        s.require(head > KEPT * len(s.tokens(conversation)), "a system prompt of more than half")
        answer = s.ask("turn 1", conversation)
        s.ask("probe", probe, purpose=Purpose.PROBE)
        s.ask("turn 2", conversation.then(answer.text, MORE), reuse=Claim.PROMISED)


def require_title_request(s: Scenario, conversation: Prompt, probe: Prompt) -> int:
    """The probe leaves a slot that the next turn is given, and that looks good enough to it.

    How many tokens they share.
    """
    head = shares(s, conversation, probe)
    held = len(s.tokens(probe)) + Options().n_predict - 1
    s.require(head > KEPT * held, f"a system prompt of more than half of {held} tokens")
    answer = "a" * Options().n_predict
    turn = len(s.tokens(conversation.then(answer, MORE)))
    s.require(head > SIMILAR * turn, f"a system prompt of more than a tenth of {turn} tokens")
    return head


def test_summary_request(start: Start) -> None:
    """A probe that is the whole conversation and a question about it."""
    conversation = prose("talk", 400).under(SYSTEM)
    with start() as s:
        answer = s.ask("turn 1", conversation)
        summary = conversation.then(answer.text, prose("sum up", 60).text)
        shared, length = shares(s, conversation, summary), len(s.tokens(conversation))
        s.require(shared > WHOLE * length, f"a summary that goes on from {length} tokens")
        s.ask("probe", summary, reuse=Claim.PROMISED, purpose=Purpose.PROBE)
        s.ask("turn 2", conversation.then(answer.text, MORE), reuse=Claim.PROMISED)


def test_polling(start: Start, route: Route) -> None:
    """What monitors ask all day is not even a request for an answer."""
    conversation = talk(route)
    with start(slots=True, metrics=True) as s:
        answer = s.ask("turn 1", conversation)
        for turn in (1, 2, 3):
            s.act(f"GET /health {turn}", lambda client, seconds: client.health(timeout=seconds))
            s.act(f"GET /slots {turn}", lambda client, seconds: client.slots(timeout=seconds))
            s.act(f"GET /metrics {turn}", lambda client, seconds: client.metrics(timeout=seconds))
            s.act(f"GET /props {turn}", lambda client, seconds: client.props(timeout=seconds))
            s.act(f"GET /v1/models {turn}", lambda client, seconds: client.models(timeout=seconds))
        s.ask("turn 2", conversation.then(answer.text, MORE), reuse=Claim.PROMISED)


@pytest.mark.parametrize(
    ("conversation_scale", "probe_scale"), [(0.0, 1.0), (0.5, 0.0)], ids=["probe", "conversation"]
)
def test_health_check_under_another_adapter(
    start: Start, route: Route, conversation_scale: float, probe_scale: float
) -> None:
    """The probe has an adapter and the conversation none, and the other way round."""
    conversation, probe = talk(route), health_check(route)
    lora = {"A": conversation_scale}
    with start({"A": 0.0}) as s:
        require_health_check(s, conversation, probe)
        answer = s.ask("turn 1", conversation, lora=lora)
        s.ask("probe", probe, lora={"A": probe_scale}, purpose=Purpose.PROBE)
        turn = conversation.then(answer.text, MORE)
        s.ask("turn 2", turn, lora=lora, reuse=Claim.PROMISED)
