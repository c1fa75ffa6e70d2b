"""Texts that go on from the middle of a state, which not every memory can rewind to.

Full attention keeps any prefix. A sliding window, and the state of a recurrent layer, do not: there
llama-server resumes at a context checkpoint, set near the end of a prompt and, in a chat, where a
user's message begins (upstream #13194, #21831, #25472). What lies behind the fork must leave no
trace (upstream #20532, #24411): it is full of '#', which generated models feel anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.expect import Claim
from harness.memory import Memory
from harness.prompts import Prompt, Route, prose
from tests.cache.conftest import Start

if TYPE_CHECKING:
    from harness.server.config import ConfigFields

TEXT_ONLY = pytest.mark.routes(Route.COMPLETION)
CHECKPOINTS = pytest.mark.parametrize(
    "required", [{"checkpoint_min_step": 0}, {}], ids=["all_kept", "default"]
)
"""Whether every checkpoint is kept; by default some are given up as a conversation grows."""

TAIL = " and then?"


def marked(name: str, characters: int) -> str:
    """A text that an answer to another one must not feel: every tenth character is '#'.

    A single one is felt. With many, an answer to the text itself would be between two cells.
    """
    text = list(prose(name, characters).text)
    text[::10] = "#" * len(text[::10])
    return "".join(text)


@TEXT_ONLY
@pytest.mark.parametrize("shared", [560, 300], ids=["late", "middle"])
def test_fork(start: Start, shared: int) -> None:
    """Two texts with the same beginning, in turn: a draft that is written anew from some point.

    Of memory that cannot rewind nothing is promised where the fork is far from the end.
    """
    head = prose("head", shared)
    one, other = head + marked("one", 600 - shared), head + prose("other", 600 - shared).text
    with start() as s:
        s.ask("one", one, slot=0)
        s.ask("other", other, slot=0, reuse=Claim.PROMISED)
        s.ask("one again", one, slot=0, reuse=Claim.PROMISED)


@TEXT_ONLY
@pytest.mark.memory(Memory.DENSE, Memory.SWA)
def test_fork_within_the_window(start: Start) -> None:
    """The same in a text that is shorter than a sliding window: all of it is still there."""
    head = prose("head", 85)
    with start(ubatch_size=16) as s:
        s.ask("one", head + marked("one", 15), slot=0)
        s.ask("other", head + prose("other", 15).text, slot=0, reuse=Claim.PROMISED)


@TEXT_ONLY
def test_append(start: Start) -> None:
    """A conversation of four turns in one slot, each with all that was said before."""
    text = prose("talk", 400)
    with start() as s:
        for turn in (1, 2, 3, 4):
            reuse = Claim.ALLOWED if turn == 1 else Claim.PROMISED
            answer = s.ask(f"turn {turn}", text, slot=0, reuse=reuse)
            text = text.then(answer.text, prose(f"turn {turn}", 40).text)


@TEXT_ONLY
def test_repeats(start: Start) -> None:
    """One text again and again, then after another one: an answer is asked for anew."""
    text = prose("text", 600)
    with start() as s:
        s.ask("first", text, slot=0)
        s.ask("second", text, slot=0, reuse=Claim.PROMISED)
        s.ask("third", text, slot=0, reuse=Claim.PROMISED)
        s.ask("another", prose("another", 600), slot=0)
        s.ask("fourth", text, slot=0, reuse=Claim.PROMISED)


@TEXT_ONLY
@CHECKPOINTS
def test_first_turn_again(start: Start, required: ConfigFields) -> None:
    """A conversation grows for three turns, and starts over from its first answer."""
    first = prose("talk", 300)
    with start(**required) as s:
        text = first
        for turn in (1, 2, 3):
            reuse = Claim.ALLOWED if turn == 1 else Claim.PROMISED
            answer = s.ask(f"turn {turn}", text, slot=0, reuse=reuse)
            text = text.then(answer.text, marked(f"turn {turn}", 200))
        s.ask("turn 1 again", first, slot=0, reuse=Claim.PROMISED)


@pytest.mark.routes(Route.CHAT)
@pytest.mark.parametrize("edited", [2, 3], ids=["second", "last"])
@CHECKPOINTS
def test_edited_message(start: Start, required: ConfigFields, edited: int) -> None:
    """A user's message is written anew, in a chat of three, and its answer asked for again.

    What stands before the message is promised where it surely has a checkpoint: by default only
    the last one has. A window that ends in the edited message still sees marks in the
    first one, so that it is felt if a part of it is missing.
    """
    first = prose("message", 205).text + "#" * 40 + prose("1", 55).text
    messages = [first, marked("message 2", 300), marked("message 3", 300)]
    with start(**required) as s:
        chat, said = Prompt((messages[0],)), []
        for turn in (1, 2, 3):
            said.append(s.ask(f"turn {turn}", chat, slot=0).text)
            if turn < 3:
                chat = chat.then(said[-1], messages[turn])
        changed = Prompt((messages[0],))
        for turn in range(2, edited + 1):
            text = prose("edited", 300).text if turn == edited else messages[turn - 1]
            changed = changed.then(said[turn - 2], text)
        s.ask("edited", changed, slot=0, reuse=Claim.PROMISED)


@TEXT_ONLY
@pytest.mark.memory(Memory.RECURRENT, Memory.HYBRID)
def test_removed_text(start: Start) -> None:
    """`--cache-reuse`, which moves KV, where there is a state that cannot be moved.

    Text is taken out of the middle. What stood behind it was computed from it.
    """
    head, tail = prose("head", 100).text, prose("tail", 500).text
    with start(cache_reuse=64, ubatch_size=512) as s:
        s.ask("whole", Prompt((head + "#" * 300 + tail,)), slot=0)
        s.ask("without its middle", Prompt((head + tail,)), slot=0)
