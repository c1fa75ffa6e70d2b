"""What a server has computed so far, and so what the next request may at most reuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from harness.memory import Checkpoints, Memory, promise
from harness.setting import Setting


@dataclass(frozen=True, slots=True)
class State:
    """Tokens that were computed, and the adapters they were computed under."""

    tokens: tuple[int, ...] = field(repr=False)
    setting: Setting
    checkpoints: Checkpoints | None = None
    """None where nothing is known of any."""
    step: str = ""
    """The step that left it."""


NOTHING = State((), Setting())
"""What is in a slot that was never used."""


@dataclass(frozen=True, slots=True)
class Share:
    """How many tokens of a prompt a state has that may, or must, be reused."""

    tokens: int = 0
    """Those that count: of a promise fewer than are shared."""
    steps: tuple[str, ...] = ()
    """The steps that left the states with as many, the last one last."""
    shared: int = 0
    """Those that it has; the last one of the prompt, which is always read, left out."""


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
        if slot is None or self.prompt_cache:  # what goes on may have been anywhere before
            known = (*self._in_slot.values(), *self._anywhere)
            left = {id(old): _outgrown(old, state) for old in known}  # one object stays one
            self._in_slot = {k: left[id(old)] for k, old in self._in_slot.items()}
            self._anywhere = [left[id(old)] for old in self._anywhere]
        if slot is not None:
            self._in_slot.pop(slot, None)  # the last one comes last
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

    def possible(self, prompt: Sequence[int], setting: Setting) -> Share:
        """Tokens of `prompt` that may be reused.

        The longest common prefix with a state under the same setting; at least one token is
        always read, to have something to predict from.
        """
        shared = ((self._shared(prompt, state), state) for state in self._under(setting))
        return _largest(Share(tokens, (state.step,), tokens) for tokens, state in shared)

    def promised(
        self,
        prompt: Sequence[int],
        setting: Setting,
        *,
        slot: int | None,
        memory: Memory,
        ubatch: int,
    ) -> Share:
        """Tokens of `prompt` that a user may rely on being reused, of memory of this kind.

        Where a slot is asked for, those that it has, or that the prompt cache can bring to it: not
        what is in another slot.
        """
        only = None if slot is None or self.prompt_cache else self._in_slot.get(slot, NOTHING)
        elsewhere = [] if slot is None else [s for k, s in self._in_slot.items() if k != slot]
        return _largest(
            Share(
                promise(
                    common_prefix(prompt, state.tokens),
                    len(prompt),
                    state.checkpoints,
                    memory=memory,
                    ubatch=ubatch,
                ),
                (state.step,),
                self._shared(prompt, state),
            )
            for state in self._under(setting)
            if (only is None or state is only) and not any(state is s for s in elsewhere)
        )

    @staticmethod
    def _shared(prompt: Sequence[int], state: State) -> int:
        return min(common_prefix(prompt, state.tokens), len(prompt) - 1)

    def _under(self, setting: Setting) -> Iterable[State]:
        """The states under a setting, in the order they were left where that is known."""
        states = (*self._in_slot.values(), *self._anywhere)
        return (state for state in states if state.setting == setting)


def _largest(shares: Iterable[Share]) -> Share:
    """The largest one, with the steps of all that are as large."""
    best = Share()
    for share in shares:
        if share.tokens > best.tokens:
            best = share
        elif share.tokens and share.tokens == best.tokens:
            others = (step for step in best.steps if step not in share.steps)
            best = replace(share, steps=(*others, *share.steps))
    return best


def _outgrown(old: State, new: State) -> State:
    """The old state, which is no longer there by itself where the new one goes on from it."""
    if old.checkpoints is None or old.setting != new.setting or len(new.tokens) <= len(old.tokens):
        return old
    prompt = old.checkpoints.prompt_tokens
    if new.tokens[:prompt] != old.tokens[:prompt]:
        return old
    left = replace(old.checkpoints, grown=True) if old.checkpoints.kept else None
    return replace(old, checkpoints=left)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    for position, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return position
    return min(len(one), len(other))
