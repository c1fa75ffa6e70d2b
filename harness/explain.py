"""Why reuse fell short, or went too far: one of a few reasons, with the numbers that show it.

Reasons explain a verdict, and never make one. They are told from the server's log and from what the
scenario did before; a state goes by the name of the step that left it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from harness.cause import Cause
from harness.chronicle import Chronicle, Held, Via
from harness.course import Course, follow
from harness.expect import Kind
from harness.ledger import Reason, RequestRow
from harness.miss import SIMILARITY, Miss, Whereabouts, state
from harness.server.events import Event, How
from harness.setting import Setting

_OTHER_KINDS: Mapping[str, Cause] = {
    Kind.CRASH: Cause.ENDED,
    Kind.HANG: Cause.NO_ANSWER,
    Kind.REFUSED: Cause.REFUSED,
    Kind.ACCEPTED: Cause.TAKEN,
    Kind.ACCOUNTING: Cause.NUMBERS,
}
_FROM: Mapping[Via, Cause] = {
    Via.COMPUTED: Cause.FROM_SLOT,
    Via.CACHE: Cause.FROM_CACHE,
    Via.FILE: Cause.FROM_FILE,
}


def explained(
    steps: Iterable[tuple[RequestRow, Iterable[Event]]], *, similarity: float | None = None
) -> list[RequestRow]:
    """The steps of one scenario, those with a reason where one is due.

    `similarity` is the server's `--slot-prompt-similarity`, None its default.
    """
    narrator = _Narrator(SIMILARITY if similarity is None else similarity)
    return [narrator.told(row, events) for row, events in steps]


class _Narrator:
    """Goes through the steps of a scenario, and knows what was before."""

    def __init__(self, similarity: float) -> None:
        self._similarity = similarity
        self._chronicle = Chronicle()
        self._rows: dict[str, RequestRow] = {}

    def told(self, row: RequestRow, events: Iterable[Event]) -> RequestRow:
        """The row of a step, with its reason if one is due."""
        if row.route == "restart":
            self._chronicle = Chronicle()
        elif row.route == "restore" and row.slot_asked is not None:
            self._learn_of_file(row, row.slot_asked)
        answers = bool(row.prompt_tokens)
        at = Whereabouts.of(row.state, self._chronicle) if answers and row.state else None
        course = follow(self._chronicle, row.step, events, completion=answers)
        self._rows[row.step] = row
        row = replace(row, chosen=_chosen(row, course), read_again=_read_again(row))
        return replace(row, reason=self._reason(row, course, at))

    def _learn_of_file(self, row: RequestRow, slot: int) -> None:
        """What a slot file changed: the log says so only where it was refused."""
        if row.file is None and Kind.ACCEPTED not in dict(row.failures):
            self._chronicle.suspects[slot] = row.step
            return
        tokens = row.file.tokens if row.file else 0
        held = Held((row.state or row.step,), tokens, Via.FILE)
        self._chronicle.restore(row.step, slot, held)

    def _reason(self, row: RequestRow, course: Course, at: Whereabouts | None) -> Reason | None:
        kinds = {kind for kind, _ in row.failures}
        if Kind.LOST_REUSE in kinds:
            return self._miss(row, course, at)
        if kinds & {Kind.WRONG_REUSE, Kind.WRONG_ANSWER}:
            return self._origin(row, course)
        if kinds:
            return _other(row, course)
        if row.read_again:
            return self._miss(row, course, at)
        if not row.cache_prompt and at is not None:
            return Reason(cause=Cause.NOT_ASKED, text=f"{state(at.step)} was not to be reused")
        return None

    def _miss(self, row: RequestRow, course: Course, at: Whereabouts | None) -> Reason:
        """Why too little was reused."""
        if at is None or course.slot is None:
            return Reason(cause=Cause.UNKNOWN, text="the log does not tell of this request")
        return Miss(
            row=row,
            course=course,
            at=at,
            similarity=self._similarity,
            slot=course.slot,
            loss=self._chronicle.losses.get(at.step),
        ).reason()

    def _origin(self, row: RequestRow, course: Course) -> Reason:
        """Where that came from which was reused and should not have been, or is wrong."""
        source = course.source
        too_much = Kind.WRONG_REUSE in dict(row.failures)
        if not row.cache_n:
            return Reason(cause=Cause.NOT_REUSED, text="the answer is wrong by itself")
        if course.shifted:
            where = f"{course.shifted} tokens were moved to where the prompt has them"
            return Reason(cause=Cause.SHIFTED, text=where)
        if course.checkpoint is not None and not too_much:
            where = f"it was made after {course.checkpoint.tokens} tokens"
            return Reason(cause=Cause.AT_CHECKPOINT, text=where)
        if source is None:
            return Reason(cause=Cause.UNKNOWN, text="the log does not tell what the slot had")
        left = f"slot {course.slot} had {state(source.step)}, {self._computed(source, row)}"
        return Reason(cause=_FROM[source.via], text=left)

    def _computed(self, source: Held, row: RequestRow) -> str:
        """Under which adapters a state was computed that a request made use of."""
        left = self._rows.get(source.step)
        if left is None or not left.prompt_tokens:
            return "of which nothing is known"
        here, there = Setting.of(row.setting), Setting.of(left.setting)
        same = f"computed under the same adapters, {here}"
        return same if here == there else f"computed under {there}, and here is {here}"


def _chosen(row: RequestRow, course: Course) -> str | None:
    """How the slot was chosen; builds before b9725 do not say so where one was asked for."""
    if course.selected is not None:
        return course.selected.how
    return How.BY_ID if row.prompt_tokens and row.slot_asked is not None else None


def _read_again(row: RequestRow) -> int:
    return 0 if row.cache_n is None else max(0, row.possible - row.cache_n)


def _other(row: RequestRow, course: Course) -> Reason:
    """Of a failure that has nothing to do with reuse."""
    kind, message = next((kind, text) for kind, text in row.failures if kind in _OTHER_KINDS)
    return Reason(cause=_OTHER_KINDS[kind], text=course.aborted or message)
