"""Texts of a known length and the conversations made of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from enum import StrEnum


class Route(StrEnum):
    """How a prompt is sent."""

    COMPLETION = "completion"
    """`POST /completion`, the text as it is."""
    V1_COMPLETIONS = "v1_completions"
    """`POST /v1/completions`, the text as it is."""
    CHAT = "chat"
    """`POST /v1/chat/completions`, as messages."""


@dataclass(frozen=True, slots=True, repr=False)
class Prompt:
    """A conversation: the turns of user and assistant in turn, the user's first and last."""

    turns: tuple[str, ...]
    system: str = ""
    """What stands before all turns: in a chat, the system prompt."""

    def __repr__(self) -> str:
        """Sizes only: a traceback must not show a prompt."""
        parts = ([self.system] if self.system else []) + list(self.turns)
        return f"Prompt of {' + '.join(str(len(part)) for part in parts)} characters"

    @property
    def text(self) -> str:
        """The prompt for a completion: everything, one after the other."""
        return self.system + "".join(self.turns)

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt for a chat."""
        roles = ("user", "assistant")
        turns = [{"role": roles[i % 2], "content": turn} for i, turn in enumerate(self.turns)]
        return [{"role": "system", "content": self.system}, *turns] if self.system else turns

    def __add__(self, text: str) -> Prompt:
        """The same conversation with a longer last turn."""
        return replace(self, turns=(*self.turns[:-1], self.turns[-1] + text))

    def then(self, answer: str, text: str) -> Prompt:
        """The next turn of the conversation: the answer it got, and what the user says now."""
        return replace(self, turns=(*self.turns, answer, text))

    def with_turn(self, number: int, text: str) -> Prompt:
        """The same conversation with another text for one turn, counted from 0."""
        return replace(self, turns=(*self.turns[:number], text, *self.turns[number + 1 :]))

    def under(self, system: str) -> Prompt:
        """The same conversation with a system prompt."""
        return replace(self, system=system)


# Those of the article that this harness goes back to; each is followed by "And then" there.
GLASS = Prompt(("Look in thy glass and tell the face thou viewest. " * 15,))
FOX = Prompt(("The quick brown fox jumps over the lazy dog. " * 15,))


def prose(name: str, characters: int) -> Prompt:
    """A text of words in small letters, the same for the same `name`, unlike any other's.

    The generated models read one token a character; others fewer.
    """
    digits = hashlib.shake_256(name.encode()).digest(characters)
    letters = ["abcdefghijklmnopqrstuvwxyz"[digit % 26] for digit in digits]
    for position in range(5, characters - 1, 6):  # words of five letters
        letters[position] = " "
    return Prompt(("".join(letters),))
