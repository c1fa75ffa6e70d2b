"""Why reuse fell short, or went too far: one of a few reasons, with the numbers that show it.

Reasons explain a verdict, and never make one. They are told from the server's log and from what the
scenario did before; a state goes by the name of the step that left it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from harness.chronicle import Chronicle, End, Entry, Held, Loss, Via
from harness.course import Course, follow
from harness.expect import Kind
from harness.ledger import Reason, RequestRow
from harness.server.events import Event, How, SlotSelected
from harness.setting import Setting

SIMILARITY = 0.1
"""llama-server's default of `--slot-prompt-similarity`."""
_KEEP_ENTRY = 0.25
"""An entry of which less would be kept is not restored."""
_KEEP_SLOT = 0.5
"""Of a slot that keeps as much nothing is saved, and no better state looked for."""


class Cause(StrEnum):
    """The reasons."""

    # Why less was reused than some state has.
    NOTHING_SIMILAR = "no similar slot or entry"
    SLOT_KEEPS_ENOUGH = "not looked up: the slot keeps enough"
    PINNED = "not looked up: the slot was asked for"
    SIMILARITY_OFF = "not looked up: similarity is off"
    BELOW_THRESHOLD = "looked up, but below a threshold"
    OTHER_SLOT = "another slot was chosen"
    DISCARDED = "discarded for a change of adapters"
    NO_CHECKPOINT = "no checkpoint near enough"
    CONSUMED = "consumed by another request"
    EVICTED = "evicted from the prompt cache"
    SLOT_TAKEN = "slot taken by another request, unsaved"
    IDLE_CLEARED = "idle slot cleared, unsaved"
    NEVER_WRITTEN = "never written"
    FILE_REFUSED = "slot emptied by a refused slot file"
    POOL_FULL = "KV pool exhausted"
    SLEPT = "the server slept"
    NOT_ASKED = "cache_prompt is false"
    # Where that came from which should not have been reused, or was reused and is wrong.
    STALE_SLOT = "kept from its slot"
    STALE_ENTRY = "restored from the prompt cache"
    STALE_FILE = "restored from a slot file"
    AT_CHECKPOINT = "resumed at a context checkpoint"
    SHIFTED = "moved by --cache-reuse"
    NOT_REUSED = "nothing was reused"
    # What has nothing to do with reuse.
    ENDED = "the server ended"
    NO_ANSWER = "no answer"
    REFUSED = "refused"
    TAKEN = "taken, though not whole"
    NUMBERS = "the server's numbers"
    UNKNOWN = "unknown"


_OTHER_KINDS: Mapping[str, Cause] = {
    Kind.CRASH: Cause.ENDED,
    Kind.HANG: Cause.NO_ANSWER,
    Kind.REFUSED: Cause.REFUSED,
    Kind.ACCEPTED: Cause.TAKEN,
    Kind.ACCOUNTING: Cause.NUMBERS,
}
_STALE: Mapping[Via, Cause] = {
    Via.COMPUTED: Cause.STALE_SLOT,
    Via.CACHE: Cause.STALE_ENTRY,
    Via.FILE: Cause.STALE_FILE,
}


def explained(
    steps: Iterable[tuple[RequestRow, Iterable[Event]]], *, similarity: float | None = None
) -> list[RequestRow]:
    """The steps of one scenario, those with a reason where one is due.

    `similarity` is the server's `--slot-prompt-similarity`.
    """
    narrator = _Narrator(SIMILARITY if similarity is None else similarity)
    return [narrator.told(row, events) for row, events in steps]


@dataclass(frozen=True, slots=True)
class _Whereabouts:
    """Where the state that a request should have found was when it came."""

    step: str
    slots: list[int]
    entry: Entry | None
    loss: Loss | None
    held: dict[int, Held]
    suspects: dict[int, str]


class _Narrator:
    """Goes through the steps of a scenario, and knows what was before."""

    def __init__(self, similarity: float) -> None:
        self._similarity = similarity
        self._chronicle = Chronicle()
        self._rows: dict[str, RequestRow] = {}

    def told(self, row: RequestRow, events: Iterable[Event]) -> RequestRow:
        """The row of a step, with its reason if it needs one."""
        if row.route == "restart":
            self._chronicle = Chronicle()
        at = self._whereabouts(row)
        completion = bool(row.prompt_tokens)
        if row.route == "restore":
            self._learn_of_file(row)
        course = follow(self._chronicle, row.step, events, completion=completion)
        self._rows[row.step] = row
        chosen = course.selected.how if course.selected else None
        if chosen is None and row.slot_asked is not None and row.prompt_tokens:
            chosen = How.BY_ID  # builds before b9725 do not say so
        read_again = row.possible - row.cache_n if row.cache_n is not None else 0
        row = replace(row, chosen=chosen, read_again=max(0, read_again))
        found = self._reason(row, course, at)
        return replace(row, reason=Reason(cause=found[0], text=found[1])) if found else row

    def _whereabouts(self, row: RequestRow) -> _Whereabouts | None:
        if row.state is None or not row.prompt_tokens:
            return None
        known = self._chronicle
        entry = known.in_cache(row.state)
        return _Whereabouts(
            step=row.state,
            slots=known.in_slots(row.state),
            entry=entry and replace(entry),
            loss=known.losses.get(row.state),
            held=dict(known.slots),
            suspects=dict(known.suspects),
        )

    def _learn_of_file(self, row: RequestRow) -> None:
        """What a slot file changed, which the log does not tell."""
        if row.slot_asked is None:
            return
        taken = row.file is not None or Kind.ACCEPTED in dict(row.failures)
        if taken:
            tokens = row.file.tokens if row.file else 0
            held = Held((row.state or row.step,), tokens, Via.FILE)
            self._chronicle.restore(row.step, row.slot_asked, held)
        else:
            self._chronicle.suspects[row.slot_asked] = row.step

    def _reason(
        self, row: RequestRow, course: Course, at: _Whereabouts | None
    ) -> tuple[Cause, str] | None:
        kinds = {kind for kind, _ in row.failures}
        if Kind.LOST_REUSE in kinds:
            return self._miss(row, course, at)
        if kinds & {Kind.WRONG_REUSE, Kind.WRONG_ANSWER}:
            return self._origin(row, course, kinds)
        if kinds:
            return _other(row, course)
        if row.read_again:
            return self._miss(row, course, at)
        if not row.cache_prompt and at is not None:
            return Cause.NOT_ASKED, f"{_state(at.step)} was not to be reused"
        return None

    # -- too little ------------------------------------------------------------------------------

    def _miss(self, row: RequestRow, course: Course, at: _Whereabouts | None) -> tuple[Cause, str]:
        """Why a state was not used, or not all of it."""
        if at is None or course.slot is None:
            return Cause.UNKNOWN, "no state is known that has these tokens"
        if course.slot in at.slots:
            return self._short_in_slot(row, course, at, course.slot)
        if course.restored is not None and at.step in course.restored.steps:
            return _short_of(course, f"{_state(at.step)} came from the prompt cache") or (
                Cause.UNKNOWN,
                f"{_state(at.step)} was restored, and only {row.cache_n} tokens of it used",
            )
        if row.possible <= max(self._similarity, SIMILARITY) * row.prompt_tokens:
            return Cause.NOTHING_SIMILAR, (
                f"{_state(at.step)} has most of the prompt, {row.possible} of "
                f"{row.prompt_tokens} tokens"
            )
        if at.entry is not None:
            return self._not_restored(row, course, at, at.entry, course.slot)
        if at.slots:
            return self._elsewhere(row, course, at, course.slot)
        if at.loss is not None:
            return _lost(at.step, at.loss)
        return Cause.UNKNOWN, f"the log does not tell what became of {_state(at.step)}"

    def _short_in_slot(
        self, row: RequestRow, course: Course, at: _Whereabouts, slot: int
    ) -> tuple[Cause, str]:
        """The state was in the very slot that was used."""
        where = f"{_state(at.step)} was in slot {slot}"
        held = at.held[slot]
        if held.via is Via.FILE and held.tokens < _wanted(row):
            return Cause.NEVER_WRITTEN, (
                f"the slot file with {_state(at.step)} has {held.tokens} tokens, "
                "as the slot had when it was saved"
            )
        if slot in at.suspects and not row.cache_n and not course.discarded:
            return Cause.FILE_REFUSED, f"{where} until {at.suspects[slot]!r} was refused"
        if course.restored is not None and course.restored.step != at.step:
            other = course.restored
            return Cause.BELOW_THRESHOLD, (
                f"{where}, and {_state(other.step)} of {other.tokens} tokens was restored over it"
            )
        return _short_of(course, where) or (
            Cause.UNKNOWN,
            f"{where}, and only {row.cache_n} tokens of it were used",
        )

    def _not_restored(
        self, row: RequestRow, course: Course, at: _Whereabouts, entry: Entry, slot: int
    ) -> tuple[Cause, str]:
        """The state was in the prompt cache, and stayed there."""
        where = f"{_state(at.step)} was in the prompt cache"
        if course.restore_failed:
            return Cause.POOL_FULL, f"{where} and could not be restored"
        if course.restored is not None:
            other = course.restored
            return Cause.BELOW_THRESHOLD, (
                f"{where}, and {_state(other.step)} of {other.tokens} tokens was taken"
            )
        if course.lookup is not None:
            return Cause.BELOW_THRESHOLD, f"{where}: {_below(row, course, entry)}"
        return self._gate(row, course, at, slot)

    def _gate(
        self, row: RequestRow, course: Course, at: _Whereabouts, slot: int
    ) -> tuple[Cause, str]:
        """What kept a request from the prompt cache."""
        where = f"{_state(at.step)} was in the prompt cache"
        here = at.held.get(slot)
        selected = course.selected
        if selected is not None and selected.how is How.SIMILARITY:
            return Cause.SLOT_KEEPS_ENOUGH, f"{where}; {_keeps(slot, here, selected)}"
        if row.slot_asked is None:
            return Cause.UNKNOWN, f"{where} and was not looked for"
        if selected is None:
            return Cause.PINNED, f"{where}, where this build does not look for a pinned slot"
        if not self._similarity:
            return Cause.SIMILARITY_OFF, f"{where}; slot {slot} was asked for, and nothing compared"
        if here is None:
            return Cause.PINNED, f"{where}; slot {slot}, which was asked for, was empty"
        return Cause.SLOT_KEEPS_ENOUGH, f"{where}; {_keeps(slot, here, selected)}"

    def _elsewhere(
        self, row: RequestRow, course: Course, at: _Whereabouts, slot: int
    ) -> tuple[Cause, str]:
        """The state was in another slot."""
        where = f"{_state(at.step)} was in slot {at.slots[0]}"
        if row.slot_asked is not None:
            return Cause.PINNED, f"{where}, and slot {slot} was asked for"
        if course.discarded is not None:
            other = course.discarded
            return Cause.DISCARDED, (
                f"{where}, but slot {slot} was chosen, where {_state(other.step)} had other "
                "adapters and was cleared"
            )
        if not self._similarity:
            return Cause.SIMILARITY_OFF, f"{where}, and slot {slot} was the least recently used"
        return Cause.OTHER_SLOT, f"{where}, and slot {slot} was used"

    # -- too much, or wrong ----------------------------------------------------------------------

    def _origin(self, row: RequestRow, course: Course, kinds: set[str]) -> tuple[Cause, str]:
        """Where the tokens came from that were reused."""
        source = course.source
        if not row.cache_n:
            return Cause.NOT_REUSED, "the answer is wrong by itself"
        if course.shifted:
            return Cause.SHIFTED, f"{course.shifted} tokens were moved to where the prompt has them"
        if course.checkpoint is not None and Kind.WRONG_REUSE not in kinds:
            return Cause.AT_CHECKPOINT, f"after {course.checkpoint.tokens} tokens"
        if source is None:
            return Cause.UNKNOWN, f"slot {course.slot} had nothing that is known"
        return _STALE[source.via], (
            f"slot {course.slot} had {_state(source.step)}, {self._computed(source, row)}"
        )

    def _computed(self, source: Held, row: RequestRow) -> str:
        """Under which adapters a state was computed that a request made use of."""
        left = self._rows.get(source.step)
        if left is None or not left.prompt_tokens:
            return "which nothing is known of"
        if left.setting == row.setting:
            return f"computed under the same adapters, {_setting(row)}"
        return f"computed under {_setting(left)}, and here is {_setting(row)}"


def _short_of(course: Course, where: str) -> tuple[Cause, str] | None:
    """Why not all of a state was used that was in the slot when the request was launched."""
    if course.discarded is not None:
        changed = course.adapters_changed
        never = changed is not None and not changed.before
        why = "the slot had no adapters yet" if never else "its last request had other adapters"
        return Cause.DISCARDED, f"{where}, and was cleared: {why}"
    if course.reprocessed:
        return Cause.NO_CHECKPOINT, f"{where}, and none of its checkpoints could be used"
    if course.checkpoint is not None:
        return Cause.NO_CHECKPOINT, (
            f"{where}, and the last checkpoint to resume at was after {course.checkpoint.n_past} "
            "tokens"
        )
    return None


def _below(row: RequestRow, course: Course, entry: Entry) -> str:
    """Which threshold an entry did not pass."""
    compared = [c for c in course.compared if c.tokens == entry.tokens]
    shared = max((c.shared for c in compared), default=row.possible)
    f_keep, f_sim = shared / entry.tokens, shared / row.prompt_tokens
    if f_keep < _KEEP_ENTRY:
        return f"{shared} of its {entry.tokens} tokens: f_keep {f_keep:.3f} < {_KEEP_ENTRY}"
    base = course.lookup
    assert base is not None
    return (
        f"f_keep {f_keep:.3f} and f_sim {f_sim:.3f} are not both better than the slot's "
        f"{base.f_keep:.3f} and {base.f_sim:.3f}"
    )


def _keeps(slot: int, here: Held | None, selected: SlotSelected) -> str:
    share = "" if selected.f_keep is None else f"{selected.f_keep:.3f} "
    what = f"that of {here.step!r}, {here.tokens} tokens" if here else "another"
    return f"slot {slot} had {what}, and f_keep {share}>= {_KEEP_SLOT} is enough"


def _lost(step: str, loss: Loss) -> tuple[Cause, str]:
    """What became of a state that is nowhere any more."""
    where = "" if loss.slot is None else f" in slot {loss.slot}"
    what = f"{_state(step)}, {loss.held} tokens{where}"
    by = repr(loss.by)
    match loss.end:
        case End.EVICTED:
            return Cause.EVICTED, f"{what}, went when {by} came ({loss.why or 'limit'})"
        case End.CUT:
            return Cause.CONSUMED, f"{what}, was restored for {by}, which kept {loss.kept}"
        case End.DISCARDED:
            return Cause.CONSUMED, f"{what}, was restored for {by} and cleared for its adapters"
        case End.ADAPTERS:
            return Cause.SLOT_TAKEN, f"{what}, was cleared for the adapters of {by}"
        case End.OVERWRITTEN:
            return Cause.SLOT_TAKEN, f"{what}: {by} came, which kept {loss.kept}"
        case End.FILE_REFUSED:
            return Cause.FILE_REFUSED, f"{what}, was cleared when {by} was refused"
        case End.REPLACED:
            return Cause.SLOT_TAKEN, f"{what}, was replaced by the slot file of {by}"
        case End.NOT_TAKEN:
            return Cause.NEVER_WRITTEN, f"{what}: {loss.why}, when {by} came"
        case End.NO_COMPLETION:
            return Cause.NEVER_WRITTEN, f"{what}: {by}, which is no completion, saves nothing"
        case End.IDLE:
            return Cause.IDLE_CLEARED, f"{what}, when {by} came"
        case End.PURGED:
            return Cause.POOL_FULL, f"{what}, was purged when {by} came"
        case End.SLEPT:
            return Cause.SLEPT, what


def _other(row: RequestRow, course: Course) -> tuple[Cause, str]:
    """Of a failure that has nothing to do with reuse."""
    kind, message = next(
        ((kind, text) for kind, text in row.failures if kind in _OTHER_KINDS), ("", "")
    )
    cause = _OTHER_KINDS.get(kind, Cause.UNKNOWN)
    return cause, course.aborted or message


def _wanted(row: RequestRow) -> int:
    """The tokens that a request should have found."""
    lost = row.expected is not None and row.cache_n is not None and row.cache_n < row.expected[0]
    return row.expected[0] if lost and row.expected else row.possible


def _state(step: str) -> str:
    return f"the state of {step!r}"


def _setting(row: RequestRow) -> str:
    return str(Setting.of(row.setting))
