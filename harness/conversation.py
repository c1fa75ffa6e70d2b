"""Which prompts are of one conversation, told by their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.history import common_prefix

_SAME = 0.5
"""A prompt that has more of an earlier one than this goes on with its conversation."""


@dataclass(slots=True)
class Conversations:
    """Those of one scenario, each by the step that began it."""

    _begun: dict[tuple[int, ...], str] = field(default_factory=dict)

    def of(self, step: str, prompt: Sequence[int]) -> str:
        """The conversation of a step's prompt: that of the one it shares most with, or its own."""
        tokens, most, conversation = tuple(prompt), 0, step
        for earlier, begun in self._begun.items():
            shared = common_prefix(tokens, earlier)
            if shared >= max(most, 1) and shared > _SAME * len(earlier):
                most, conversation = shared, begun
        return self._begun.setdefault(tokens, conversation)
