"""The values that a flag of llama-server takes, as the build's own `--help` describes them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

_NUMERIC = {"N", "P", "INDEX", "SEED", "PORT", "SECONDS", "SIMILARITY", "<0...100>", "<0|1>"}
"""Placeholders of a number. `--poll-batch <0|1>` takes 50, too: the range is not checked."""
_NUMBER = re.compile(
    r"\s*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)", re.IGNORECASE
)
_CHOICE = re.compile(r"\[([\w.-]+(?:\|[\w.-]+)+)\]|\{([\w.-]+(?:,[\w.-]+)+)\}")
_SEVERAL = re.compile(r"[A-Z_]+(?: [A-Z_]+)+")
"""A placeholder for more than one value: `START END`."""
_QUOTED = re.compile(r"(?<![\w\\])'([\w.-]+)'")
_ALLOWED = re.compile(r"allowed values:\s*((?:[\w.+-]+,\s+)*[\w.+-]+)")

# llama-server takes these for its switches of several positions, and its help does not say so.
_ALSO = {
    "on": ("enabled", "true", "1"),
    "off": ("disabled", "false", "0"),
    "auto": ("-1",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagValues:
    """Describes what one flag takes. Where help is not clear, every value is accepted."""

    flag: str
    """The first spelling."""
    count: int
    """How many values; 0 for a switch."""
    number: bool = False
    """Whether a value is a number, or one of `words`."""
    words: tuple[str, ...] = ()
    """The words that help names; empty where any will do."""

    @classmethod
    def described(cls, flag: str, entry: str) -> Self:
        """Read a flag's entry in `--help`, from behind its last spelling to the next entry."""
        line, _, more = entry.partition("\n")
        # The placeholder comes after one space, the text about the flag after several.
        placeholder, _, text = line.rstrip().removeprefix(" ").partition("  ")
        if line.startswith("  ") or not placeholder:
            return cls(flag=flag, count=0)
        if _SEVERAL.fullmatch(placeholder):
            return cls(flag=flag, count=len(placeholder.split()))
        text = f"{text}\n{more}"
        if placeholder in _NUMERIC:
            return cls(flag=flag, count=1, number=True, words=tuple(_QUOTED.findall(text)))
        return cls(flag=flag, count=1, words=_words(placeholder, text))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Return what was made plain data by `dataclasses.asdict`."""
        return cls(**{**data, "words": tuple(data["words"])})

    def problem(self, given: Sequence[str]) -> str:
        """Say what is wrong with a flag and its values as given; empty where nothing is."""
        name, *values = given
        if not self.count and values:
            return f"{name} takes no value, got {shlex.join(values)}"
        if len(values) < self.count:
            return f"{name} needs {'a value' if self.count == 1 else f'{self.count} values'}"
        if len(values) > self.count:
            takes = "one value" if self.count == 1 else f"{self.count} values"
            return f"{name} takes {takes}, got {shlex.join(values)}"
        if self.count != 1 or self._allows(values[0]):
            return ""
        words = ", ".join(self.words)
        if not self.number:
            return f"{shlex.join(given)} is not one of {words}"
        if self.words:
            return f"{shlex.join(given)} is neither a number nor one of {words}"
        return f"{shlex.join(given)} is not a number"

    def _allows(self, value: str) -> bool:
        if self.number:
            return value in self.words or _NUMBER.fullmatch(value) is not None
        also = (word for known in self.words for word in _ALSO.get(known, ()))
        return not self.words or value in (*self.words, *also)


def _words(placeholder: str, text: str) -> tuple[str, ...]:
    """Return the words that a value is one of; empty where help does not list them."""
    if choice := _CHOICE.fullmatch(placeholder):
        return tuple(re.split(r"[|,]", choice[1] or choice[2]))
    # `allowed values: a, b,` may go on in the next line.
    if allowed := _ALLOWED.search(text):
        return tuple(re.split(r",\s+", allowed[1]))
    return ()
