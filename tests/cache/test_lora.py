"""Reuse under LoRA adapters, through slots and the host-RAM prompt cache.

A state computed under one set of adapters and scales may only be reused under the same, and must
not be thrown away where it is the same (upstream #30129, #30275, #26207, #28674).

`start({"A": 0.0})` loads the adapters it names, at these server-wide scales. `lora` is what one
request says: the scale of every loaded adapter, `{}` for an empty field, NO_FIELD for none.
"""

from __future__ import annotations

import pytest

from harness.expect import Claim
from harness.loaded import NO_FIELD, Lora
from harness.prompts import FOX, GLASS, prose
from tests.cache.conftest import Start

P = prose("P", 400)
Q = prose("Q", 400)
TAIL = " and then?"


@pytest.mark.parametrize("scale", [1.0, 0.0], ids=["wide1", "wide0"])
def test_article(start: Start, scale: float) -> None:
    """A LoRA conversation goes on after a request that says nothing of adapters.

    Only the third request is judged: whether the second may start from the first one's BOS is the
    matter of other scenarios.
    """
    with start({"A": scale}) as s:
        s.ask("glass", GLASS, lora={"A": 0.5}, reuse=Claim.UNJUDGED)
        s.ask("fox", FOX, lora=NO_FIELD, reuse=Claim.UNJUDGED)
        s.ask("glass + tail", GLASS + "And then", lora={"A": 0.5}, reuse=Claim.PROMISED)


def test_same_adapter_comes_back(start: Start) -> None:
    """Every request is explicit, and the first one's adapter comes back with its next turn."""
    with start({"A": 0.0}) as s:
        first = s.ask("P", P, lora={"A": 0.5})
        s.ask("Q", Q, lora={"A": 0.0})
        s.ask("P, next turn", P.then(first.text, TAIL), lora={"A": 0.5}, reuse=Claim.PROMISED)


@pytest.mark.parametrize(("before", "after"), [(1.0, 0.0), (0.5, 1.0)], ids=["1to0", "half_to_1"])
def test_other_scale_comes_back(start: Start, before: float, after: float) -> None:
    """A text comes back under the scale of the request before, not under its own."""
    with start({"A": 0.0}) as s:
        s.ask("P", P, lora={"A": before})
        s.ask("Q", Q, lora={"A": after})
        s.ask("P, other scale", P, lora={"A": after})


def test_other_adapter_comes_back(start: Start) -> None:
    """A text comes back under the adapter of the request before, not under its own."""
    with start({"A": 0.0, "B": 0.0}) as s:
        s.ask("P", P, lora={"A": 1.0, "B": 0.0})
        s.ask("Q", Q, lora={"A": 0.0, "B": 1.0})
        s.ask("P, other adapter", P, lora={"A": 0.0, "B": 1.0})


@pytest.mark.parametrize("lora", [NO_FIELD, {}], ids=["left_out", "empty"])
def test_no_adapter_named_after_one(start: Start, lora: Lora) -> None:
    """A request that names no adapter follows one that did: the server-wide scale of 0 applies."""
    with start({"A": 0.0}) as s:
        s.ask("P", P, lora={"A": 1.0})
        s.ask("P, none named", P, lora=lora)


@pytest.mark.parametrize(("before", "after"), [(0.0, 1.0), (1.0, 0.0)], ids=["0to1", "1to0"])
def test_server_wide_scale_changes(start: Start, before: float, after: float) -> None:
    """`POST /lora-adapters` between two requests that leave the field out."""
    with start({"A": before}) as s:
        s.ask("P", P, lora=NO_FIELD)
        s.set_server_wide({"A": after})
        s.ask("P, after the change", P, lora=NO_FIELD)


def test_other_adapter_in_the_same_slot(start: Start) -> None:
    """A, then B, on one pinned slot; then B goes on where it left off."""
    with start({"A": 0.0, "B": 0.0}) as s:
        s.ask("P under A", P, lora={"A": 1.0, "B": 0.0}, slot=0)
        b = {"A": 0.0, "B": 1.0}
        answer = s.ask("P under B", P, lora=b, slot=0)
        turn = P.then(answer.text, TAIL)
        s.ask("B, next turn", turn, lora=b, slot=0, reuse=Claim.PROMISED)


def test_one_text_alternating(start: Start) -> None:
    """One text under A and B in turn, three rounds: both states are worth keeping."""
    with start({"A": 0.0, "B": 0.0}) as s:
        for turn in (1, 2, 3):
            reuse = Claim.ALLOWED if turn == 1 else Claim.PROMISED
            s.ask(f"A{turn}", P, lora={"A": 1.0, "B": 0.0}, reuse=reuse)
            s.ask(f"B{turn}", P, lora={"A": 0.0, "B": 1.0}, reuse=reuse)


@pytest.mark.parametrize(
    ("adapters", "lora"),
    [({"A": 0.0}, {"A": 0.5}), ({"A": 0.0}, NO_FIELD), ({}, NO_FIELD)],
    ids=["one_everywhere", "none_named", "none_loaded"],
)
def test_one_setting_everywhere(start: Start, adapters: dict[str, float], lora: Lora) -> None:
    """Control: nothing about adapters ever changes, so nothing may be lost."""
    with start(adapters) as s:
        first = s.ask("P", P, lora=lora)
        s.ask("Q", Q, lora=lora)
        s.ask("P, next turn", P.then(first.text, TAIL), lora=lora, reuse=Claim.PROMISED)


def test_restore_into_a_slot_never_used(start: Start) -> None:
    """Two texts in turn under one adapter, until every slot has been used and used again.

    A slot that never answered has no adapters yet; what the prompt cache restores into it must
    not be taken for a change of adapters.
    """
    with start({"A": 0.0}) as s:
        for turn in (1, 2, 3, 4):
            reuse = Claim.ALLOWED if turn == 1 else Claim.PROMISED
            s.ask(f"P{turn}", P, lora={"A": 0.5}, reuse=reuse)
            s.ask(f"Q{turn}", Q, lora={"A": 0.5}, reuse=reuse)


@pytest.mark.slow
def test_one_adapter_everywhere_at_30000_tokens(start_long: Start) -> None:
    """The control at the size people lose: a large state goes to the prompt cache and back."""
    long = prose("long", 30_000)
    with start_long({"A": 0.0}) as s:
        first = s.ask("long", long, lora={"A": 0.5})
        s.ask("Q", Q, lora={"A": 0.5})
        turn = long.then(first.text, TAIL)
        s.ask("long, next turn", turn, lora={"A": 0.5}, reuse=Claim.PROMISED)
