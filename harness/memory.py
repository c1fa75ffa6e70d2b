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
class Checkpoints:
    """Where a state surely can be resumed, in tokens from its beginning."""

    prompt_tokens: int
    """The length of its prompt, near the end of which they are; what follows was generated."""
    read_from: int = 0
    """Where reading it began: what was reused before has no new ones."""
    message_starts: Sequence[int] = ()
    """Where messages begin that have one."""
    kept: bool = False
    """Whether they stay when the state grows."""
    grown: bool = False
    """Whether it has, so that its own end is no longer there."""


def promise(
    shared: int, prompt: int, checkpoints: Checkpoints | None, *, memory: Memory, ubatch: int
) -> int:
    """The reuse a user may rely on, in tokens, of a state that shares `shared` with a prompt.

    The prompt has `prompt` tokens, the last of which is always read. Full attention: all that is
    shared. Other memory, where it has checkpoints: an identical repeat reads at most 8 tokens; a
    follow-up turn, or another end, at most what is new plus a micro-batch and 8. A text that goes
    on from further back is promised what stands before a message that has a checkpoint.
    """
    possible = min(shared, prompt - 1)
    if memory.rewinds:
        return possible
    if checkpoints is None:
        return 0
    end = checkpoints.prompt_tokens
    if possible == prompt - 1 and end == prompt and not checkpoints.grown:
        return max(0, prompt - _CHECKPOINT_DISTANCE)
    if possible < max(end - ubatch - _LAST_CHECKPOINT, checkpoints.read_from):
        starts = (start for start in checkpoints.message_starts if start <= possible)
        possible = max(starts, default=0)
    return max(0, possible - ubatch - _CHECKPOINT_DISTANCE)
