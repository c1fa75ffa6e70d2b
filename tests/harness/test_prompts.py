"""Texts and conversations."""

from __future__ import annotations

from harness.history import common_prefix
from harness.prompts import Prompt, prose


def test_prose_has_its_length_and_is_always_the_same() -> None:
    (text,) = prose("P", 600).turns
    assert len(text) == 600
    assert prose("P", 600) == prose("P", 600)
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyz ")
    assert not text.endswith(" ")


def test_different_names_share_no_beginning() -> None:
    one, other = prose("P", 600).text, prose("Q", 600).text
    assert common_prefix([ord(c) for c in one], [ord(c) for c in other]) == 0


def test_a_traceback_shows_no_prompt() -> None:
    assert repr(Prompt(("secret",)).then("answer", "more")) == "Prompt of 6 + 6 + 4 characters"


def test_a_conversation_alternates_its_roles() -> None:
    prompt = Prompt(("hello",)).then("hi", "how are you") + "?"
    assert prompt.messages == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "how are you?"},
    ]
    assert prompt.text == "hellohihow are you?"


def test_a_system_prompt_stands_before_all_turns() -> None:
    prompt = Prompt(("hello",)).under("be brief. ")
    longer = prompt.then("hi", "bye") + "!"
    assert prompt.messages[0] == {"role": "system", "content": "be brief. "}
    assert [message["role"] for message in longer.messages] == [
        *("system", "user", "assistant", "user")
    ]
    assert longer.text == "be brief. hellohibye!"
    assert repr(longer) == "Prompt of 10 + 5 + 2 + 4 characters"
