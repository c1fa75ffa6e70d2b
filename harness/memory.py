"""How a model remembers, and what reuse a user may rely on for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

# A state that cannot be rewound resumes at a context checkpoint. llama-server sets one 4 tokens
# before the end of a prompt, one a micro-batch earlier, and in a chat where a message begins.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What is known of where a state can be resumed, in tokens from its beginning."""

    prompt: int
    """The length of its prompt; what follows was generated."""
    messages: Sequence[int] = ()
    """Where messages begin, before which there is a checkpoint for sure."""
    grown: bool = False
    """Whether a longer state has grown out of it, so that only that one is there."""


def promised(shared: int, prompt: int, past: Past, *, memory: Memory, ubatch: int) -> int:
    """The reuse a user may rely on, in tokens, of a state that shares `shared` with a prompt.

    The prompt has `prompt` tokens, the last of which is always read. Full attention: all that is
    shared. Other memory: an identical repeat reads at most 8 tokens; a follow-up turn, or another
    end, at most what is new plus a micro-batch and 8. A text that goes on from further back is
    promised what stands before a message that has a checkpoint.
    """
    possible = min(shared, prompt - 1)
    if memory.rewinds:
        return possible
    if possible == prompt - 1 and past.prompt == prompt and not past.grown:
        return max(0, prompt - _CHECKPOINT_DISTANCE)
    if possible < past.prompt - ubatch - _LAST_CHECKPOINT:
        possible = max((start for start in past.messages if start <= possible), default=0)
    return max(0, possible - ubatch - _CHECKPOINT_DISTANCE)
