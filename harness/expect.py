"""Expectations on reuse, and the kinds of failure a step can have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum


class Kind(StrEnum):
    """What can be wrong with a step."""

    LOST_REUSE = "lost_reuse"
    """Tokens were read again that a user may rely on being reused."""
    WRONG_REUSE = "wrong_reuse"
    """Tokens were reused that may not be: no state under the same adapters has them, say."""
    WRONG_ANSWER = "wrong_answer"
    """The answer is not that of a server that cannot reuse anything."""
    ACCOUNTING = "accounting"
    """The server's own numbers contradict each other."""
    CRASH = "crash"
    """The server's process ended."""
    HANG = "hang"
    """No answer within the time a scenario has."""
    REFUSED = "refused"
    """An HTTP error, or an answer that is not what the API describes."""
    ACCEPTED = "accepted"
    """What should have been an HTTP error was not."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing wrong with one step."""

    kind: Kind
    message: str
    detail: str = ""
    """What a server said itself: for a failing test only, since it may quote a prompt."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """How many tokens of a prompt must and may be reused."""

    lower: int
    upper: int

    def judge(self, cache_n: int) -> Failure | None:
        """What is wrong with `cache_n` reused tokens, if anything."""
        if cache_n < self.lower:
            lost = _tokens(self.lower - cache_n)
            return Failure(Kind.LOST_REUSE, f"{lost} read again for nothing")
        if cache_n > self.upper:
            stale = _tokens(cache_n - self.upper)
            return Failure(Kind.WRONG_REUSE, f"{stale} reused that may not be")
        return None


def _tokens(number: int) -> str:
    return "1 token was" if number == 1 else f"{number} tokens were"


class Claim(Enum):
    """What a step claims about its reuse; the number of tokens follows from the history."""

    PROMISED = "promised"
    """All that a user may rely on is reused (as far as the model's memory allows)."""
    ALLOWED = "allowed"
    """No more than is possible is reused; less is no fault."""
    UNJUDGED = "unjudged"
    """Nothing: the step only prepares the next."""

    def bounds(self, *, promised: int, possible: int) -> Reuse | None:
        """The bounds where `possible` tokens may be reused, and a user may rely on `promised`."""
        if self is Claim.UNJUDGED:
            return None
        return Reuse(promised if self is Claim.PROMISED else 0, possible)
