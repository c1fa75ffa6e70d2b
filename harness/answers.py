"""Whether an answer is right: by the output cell, and against the same request run cold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from harness.oracle import CellOracle, describe
from harness.replies import Reply, TokenProbs

BASE_TOLERANCE = 2e-3
"""Nats. On the CPU with flash attention off, noise stays below 5e-4; one stale token is 8e-3."""

# Where noise has to be measured, many right answers are equal to a cold run's to the last bit, and
# some are 1e-2 apart: a control may have seen none of these.
_MEASURED_BASE_TOLERANCE = 2e-2
_NOISE_FACTOR = 8.0
_SIGNAL_FACTOR = 4.0
# Differences far down the distribution are numerical dust.
_RELEVANT_LOGPROB = -10.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far the logprobs of a right answer may be from a cold run's, in nats.

    Without a control the base tolerance holds.
    """

    noise: float | None = None
    """The largest difference on a control where reuse was right; None where nothing was reused."""
    signal: float | None = None
    """The smallest that another adapter setting or another text made; None without a control."""
    base: float = BASE_TOLERANCE
    """Smaller differences are noise, whatever the control showed."""

    @classmethod
    def of_control(cls, noise: float | None, signal: float) -> Self:
        """The tolerance that a control allows."""
        return cls(noise, signal, _MEASURED_BASE_TOLERANCE)

    @property
    def limit(self) -> float:
        """Differences beyond this are no noise."""
        return max(self.base, _NOISE_FACTOR * (self.noise or 0.0))

    @property
    def tells(self) -> bool:
        """Whether another setting is surely beyond the limit, so that answers can be judged."""
        if self.signal is None:
            return True
        return self.noise is not None and self.limit * _SIGNAL_FACTOR <= self.signal


def difference(cold: TokenProbs, warm: TokenProbs) -> float:
    """The largest difference of logprobs at one position, in nats.

    A token the other side does not list is taken at that side's lowest, which understates.
    """
    return max(_one_sided(cold.top, dict(warm.top)), _one_sided(warm.top, dict(cold.top)))


def _one_sided(top: Iterable[tuple[int, float]], other: Mapping[int, float]) -> float:
    lowest = min(other.values(), default=_RELEVANT_LOGPROB)
    return max(
        (abs(lp - other.get(token, lowest)) for token, lp in top if lp > _RELEVANT_LOGPROB),
        default=0.0,
    )


def wrong_cell(
    oracle: CellOracle, tokens: Sequence[TokenProbs], scales: Mapping[str, float]
) -> str | None:
    """What the answer's class of characters says, where it is not that of these scales."""
    expected = oracle.expected(scales)
    for position, cell in enumerate(oracle.cells(token.id for token in tokens)):
        if cell != expected:
            return (
                f"answer token {position + 1} is in the cell of {describe(cell)}, "
                f"a right one is in that of {describe(expected)}"
            )
    return None


def other_text(oracle: CellOracle, reply: Reply) -> str | None:
    """Where the text of an answer is not that of the tokens it reports."""
    reported = "".join(oracle.characters.get(token.id, "?") for token in reply.tokens)
    return None if reply.text == reported else "the text is not that of the reported tokens"


def unlike_cold(cold: Reply, warm: Reply, tolerance: Tolerance) -> str | None:
    """How an answer differs from the cold one beyond the tolerance, if it does.

    The logprobs at the first token, where both have seen the same prompt; then the tokens, up to
    the first position where the cold run itself was undecided; then, if none was, the text.
    """
    apart = difference(cold.tokens[0], warm.tokens[0])
    if apart > tolerance.limit:
        return (
            f"first-token logprobs are {apart:.1e} away from a cold run's, "
            f"more than {tolerance.limit:.1e}"
        )
    for position, (one, other) in enumerate(zip(cold.tokens, warm.tokens, strict=False)):
        if one.gap < tolerance.limit:
            return None
        if one.id != other.id:
            return f"answer token {position + 1} is not the cold run's, which was sure of it"
    return None if cold.text == warm.text else "the text is not the cold run's, its tokens are"
