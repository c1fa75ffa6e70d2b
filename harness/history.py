"""What a server has computed so far, and so what the next request may at most reuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness.setting import Setting


@dataclass(frozen=True, slots=True)
class State:
    """Tokens that were computed, and the adapters they were computed under."""

    tokens: tuple[int, ...] = field(repr=False)
    setting: Setting
    answer: int = 0
    """How many of the tokens were generated, after the prompt."""

    def shares(self, prompt: Sequence[int], rewind: int | None = None) -> int:
        """How many tokens it has in common with a prompt, at the beginning of both.

        None where it had to be cut more than `rewind` tokens before the end of its own prompt.
        """
        shared = common_prefix(prompt, self.tokens)
        kept = rewind is None or shared >= len(self.tokens) - self.answer - rewind
        return shared if kept else 0


@dataclass(slots=True)
class History:
    """The states a server may hold at this point of a scenario.

    With a prompt cache nothing is ever forgotten: a state that was lost, evicted or consumed stays
    in here, since the promise to a user does not know of those, and the upper bound only gets
    weaker by it. Without one a state lives in its slot, until the slot is used again.
    """

    slots: int
    """How many the server has."""
    prompt_cache: bool
    """Whether states live on outside of slots."""
    _in_slot: dict[int, State] = field(default_factory=dict)
    _anywhere: list[State] = field(default_factory=list)

    def record(self, state: State, slot: int | None) -> None:
        """A request left this state in a slot: its prompt and all it generated but the last token.

        `slot` is None where the server did not say which one it used.
        """
        if self.slots == 1:
            slot = 0
        if slot is not None:
            self._in_slot[slot] = state
        if slot is None or self.prompt_cache:
            self._anywhere.append(state)

    def in_slot(self, slot: int) -> State | None:
        """What the last request left in a slot."""
        return self._in_slot.get(slot)

    @property
    def certain(self) -> bool:
        """Whether all that was ever possible still is: no state can have been overwritten unseen.

        Only then may a user rely on it.
        """
        return self.prompt_cache or not self._anywhere

    def possible(self, prompt: Sequence[int], setting: Setting) -> int:
        """Tokens of `prompt` that may be reused.

        The longest common prefix with a state under the same setting; at least one token is
        always read, to have something to predict from.
        """
        return _reusable((*self._in_slot.values(), *self._anywhere), prompt, setting)

    def relied_on(
        self,
        prompt: Sequence[int],
        setting: Setting,
        *,
        slot: int | None = None,
        rewind: int | None = None,
    ) -> int:
        """Tokens of `prompt` that a user may rely on being reused.

        All that are possible; but where a slot is asked for, and there is no prompt cache to bring
        anything to it, those that this slot has. `rewind` is how far before the end of its prompt a
        state can be resumed, in tokens; None for anywhere.
        """
        states = (*self._in_slot.values(), *self._anywhere)
        if slot is not None and not self.prompt_cache:
            state = self.in_slot(slot)
            states = (state,) if state else ()
        return _reusable(states, prompt, setting, rewind)


def _reusable(
    states: Iterable[State], prompt: Sequence[int], setting: Setting, rewind: int | None = None
) -> int:
    shared = (state.shares(prompt, rewind) for state in states if state.setting == setting)
    return min(max(shared, default=0), len(prompt) - 1)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    for position, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return position
    return min(len(one), len(other))
