"""What a server has computed so far, and so what the next request may at most reuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.setting import Setting


@dataclass(slots=True)
class History:
    """All states a server ever held in one scenario, each with the setting it was asked under.

    A state that was lost, evicted or consumed stays in here: the promise to a user does not know
    of those, and the upper bound only gets weaker by it.
    """

    _states: list[tuple[tuple[int, ...], Setting]] = field(default_factory=list)

    def add(self, tokens: Sequence[int], setting: Setting) -> None:
        """A request left this state: its prompt and all it generated but the last token."""
        self._states.append((tuple(tokens), setting))

    def possible(self, prompt: Sequence[int], setting: Setting) -> int:
        """Tokens of `prompt` that may be reused.

        The longest common prefix with a state under the same setting; at least one token is
        always read, to have something to predict from.
        """
        longest = max(
            (common_prefix(prompt, tokens) for tokens, of in self._states if of == setting),
            default=0,
        )
        return min(longest, len(prompt) - 1)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    for position, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return position
    return min(len(one), len(other))
