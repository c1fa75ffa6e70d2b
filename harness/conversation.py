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
        """The conversation of a step's prompt: that of the last one it has most of, or its own."""
        tokens = tuple(prompt)
        for earlier, begun in reversed(self._begun.items()):
            if common_prefix(tokens, earlier) > _SAME * len(earlier):
                return self._begun.setdefault(tokens, begun)
        return self._begun.setdefault(tokens, step)
