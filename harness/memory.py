"""How a model remembers, and what reuse a user may rely on for it."""

from __future__ import annotations

from enum import StrEnum

# A state that cannot be rewound resumes at a context checkpoint. llama-server sets one 4 tokens
# before the end of a prompt, and one a micro-batch earlier.
_LAST_CHECKPOINT = 4
_CHECKPOINT_DISTANCE = 8


class Memory(StrEnum):
    """The memory kinds that differ in what they can reuse."""

    DENSE = "dense"
    """Full attention: any prefix of a state can be kept."""
    SWA = "swa"
    RECURRENT = "recurrent"
    HYBRID = "hybrid"

    @property
    def rewinds(self) -> bool:
        """Whether a state can be cut back to any of its prefixes."""
        return self is Memory.DENSE


def furthest_rewind(memory: Memory, ubatch: int) -> int | None:
    """How many tokens before the end of its prompt a state can still be resumed; None: anywhere."""
    return None if memory.rewinds else ubatch + _LAST_CHECKPOINT


def promised(possible: int, prompt: int, *, memory: Memory, ubatch: int) -> int:
    """The reuse a user may rely on, in tokens, of `possible` tokens of a `prompt` tokens long one.

    Full attention: all that is possible. Other memory: an identical repeat reads at most 8 tokens,
    a follow-up turn at most its new tokens plus a micro-batch and 8.
    """
    if memory.rewinds:
        return possible
    if possible >= prompt - 1:
        return max(0, prompt - _CHECKPOINT_DISTANCE)
    return max(0, possible - ubatch - _CHECKPOINT_DISTANCE)
