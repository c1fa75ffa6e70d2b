"""Why reuse fell short, or went too far: one of a few reasons, with the numbers that show it.

Reasons explain a verdict, and never make one. They are told from the server's log and from what the
scenario did before; a state goes by the name of the step that left it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from harness.cause import Cause
from harness.expect import Kind
from harness.ledger import Call, Reason, RequestRow
from harness.reasons.chronicle import Chronicle, Held, Via
from harness.reasons.course import DEFAULTS, Course, Rules
from harness.reasons.follow import follow
from harness.reasons.miss import Miss, Whereabouts, nearest, state
from harness.server.events import (
    AdaptersChanged,
    Event,
    How,
    PromptKept,
    SlotCompared,
    SlotSelected,
    SlotSkipped,
    TaskEnded,
    TaskStarted,
)
from harness.setting import Setting

_OTHER_KINDS: Mapping[str, Cause] = {
    Kind.CRASH: Cause.ENDED,
    Kind.HANG: Cause.NO_ANSWER,
    Kind.REFUSED: Cause.REFUSED,
    Kind.ACCEPTED: Cause.ACCEPTED,
    Kind.ACCOUNTING: Cause.NUMBERS,
}
_FIRST = (SlotSkipped, SlotCompared, SlotSelected, AdaptersChanged, TaskStarted)
"""One of these comes first when a request does."""
_LAST = (PromptKept, TaskEnded)
"""And these only where one did."""
_OF_REUSE = {Kind.LOST_REUSE, Kind.WRONG_REUSE, Kind.WRONG_ANSWER}
_NOTHING_REUSED = Reason(cause=Cause.NOT_REUSED, text="cache_n is 0")
_FROM: Mapping[Via, Cause] = {
    Via.COMPUTED: Cause.FROM_SLOT,
    Via.CACHE: Cause.FROM_CACHE,
    Via.FILE: Cause.FROM_FILE,
}


@dataclass(frozen=True, slots=True)
class Logged:
    """A step, with what the server logged since the one before."""

    row: RequestRow
    events: Iterable[Event] | None = ()
    """None where the log is not read."""
    rules: Rules = DEFAULTS


def explained(steps: Iterable[Logged]) -> list[RequestRow]:
    """The steps of one scenario, those with a reason where one is due."""
    narrator = _Narrator()
    return [narrator.told(step) for step in steps]


def unexplained(row: RequestRow, error: Exception) -> RequestRow:
    """A step that could not be explained."""
    if not row.failures and not _read_again(row):
        return row
    reason = Reason(cause=Cause.UNKNOWN, text=f"explaining failed with {type(error).__name__}")
    return replace(row, read_again=_read_again(row), reason=reason)


class _Narrator:
    """Goes through the steps of a scenario, and knows what was before."""

    def __init__(self) -> None:
        self._chronicle = Chronicle()
        self._last = ""
        """The step before."""
        self._settings: dict[str, Setting] = {}
        self._stale: dict[str, str] = {}
        """The step that a step's own state is stale from, where it reused too much."""

    def told(self, step: Logged) -> RequestRow:
        """The row of a step, with its reason if one is due."""
        if step.events is None:
            return _without_log(step.row)
        row, known = step.row, self._chronicle
        late, own = _divided(step.events)
        follow(known, self._last, late)
        if row.prompt_tokens:
            known.refusing = None  # what the log has not told by now it does not tell
        elif row.route == Call.RESTORE and row.slot_asked is not None:
            self._learn_of_file(row, row.slot_asked)
        wanted = [Whereabouts.of(name, known) for name in row.states if row.prompt_tokens]
        course = follow(
            known,
            row.step,
            own,
            prompt_tokens=row.prompt_tokens,
            cached=row.cache_prompt,
            prompt_cache=step.rules.prompt_cache,
        )
        self._learn(row, course)
        if row.prompt_tokens:
            row = replace(row, slot=course.slot if row.slot is None else row.slot)
        row = replace(row, chosen=_chosen(row, course), read_again=_read_again(row))
        return replace(row, reason=self._reason(row, course, nearest(wanted, course), step.rules))

    def _learn(self, row: RequestRow, course: Course) -> None:
        """What later steps need to know of this one."""
        self._last = row.step
        if row.prompt_tokens:
            self._settings[row.step] = Setting.of(row.setting)
            self._learn_of_stale(row, course)
        if row.route == Call.RESTART:
            self._chronicle = Chronicle()
        elif row.route != Call.RESTORE:
            self._chronicle.refusing = None

    def _learn_of_file(self, row: RequestRow, slot: int) -> None:
        """What a slot file brought; one that was refused may have emptied its slot."""
        if row.file is None and Kind.ACCEPTED not in dict(row.failures):
            self._chronicle.refusing = row.step, slot
            return
        held = Held(row.states or (row.step,), row.file.tokens if row.file else -1, Via.FILE)
        self._chronicle.restore(row.step, slot, held)

    def _learn_of_stale(self, row: RequestRow, course: Course) -> None:
        """What reused more than it might has left a stale state; so has what went on from it."""
        if course.source is None or not row.cache_n:
            return
        source = course.source.step
        if row.cache_n > row.possible or source in self._stale:
            self._stale[row.step] = self._stale.get(source, source)

    def _reason(
        self, row: RequestRow, course: Course, at: Whereabouts | None, rules: Rules
    ) -> Reason | None:
        kinds = {kind for kind, _ in row.failures}
        lost = Kind.LOST_REUSE in kinds
        wrong = bool(kinds & (_OF_REUSE - {Kind.LOST_REUSE}))
        if lost or (row.read_again and not kinds):
            miss = self._miss(row, course, at, rules)
            also = f"; and what was reused: {self._origin(row, course)}" if wrong else ""
            return replace(miss, text=miss.text + also)
        if wrong:
            return self._origin(row, course)
        if kinds:
            return _other(row, course)
        if not row.cache_prompt and at and row.shared > rules.similarity * row.prompt_tokens:
            shares = f"{state(at.step)}, with {row.shared} of {row.prompt_tokens} tokens"
            return Reason(cause=Cause.NOT_ASKED, text=f"{shares}, was not to be reused")
        return None

    def _miss(
        self, row: RequestRow, course: Course, at: Whereabouts | None, rules: Rules
    ) -> Reason:
        """Why too little was reused."""
        if at is None or course.slot is None:
            return Reason(cause=Cause.UNKNOWN, text="the log does not tell of this request")
        return Miss(
            row=row,
            course=course,
            slot=course.slot,
            at=at,
            lost_since=self._chronicle.losses.get(at.step),
            rules=rules,
            settings=self._settings,
        ).reason()

    def _origin(self, row: RequestRow, course: Course) -> Reason:
        """Where that came from which was reused and should not have been, or is wrong."""
        source, checkpoint = course.source, course.checkpoint
        if not row.cache_n:
            return _NOTHING_REUSED
        if course.shifted:
            where = f"{course.shifted} tokens were moved to where the prompt has them"
            return Reason(cause=Cause.SHIFTED, text=where)
        if source is None:
            return Reason(cause=Cause.UNKNOWN, text="the log does not tell what the slot had")
        had = f"slot {course.slot} had {state(source.step)}"
        if checkpoint is not None and Kind.WRONG_REUSE not in dict(row.failures):
            resumed = f"resumed at its checkpoint after {checkpoint.n_past} tokens"
            return Reason(cause=Cause.AT_CHECKPOINT, text=f"{had}, {resumed}")
        if source.via is Via.FILE and source.step not in self._settings:
            brought = f"slot {course.slot} had what the file of {source.step!r} brought"
            return Reason(cause=Cause.FROM_FILE, text=brought)
        return Reason(cause=_FROM[source.via], text=f"{had}, {self._computed(source.step, row)}")

    def _computed(self, source: str, row: RequestRow) -> str:
        """Under which adapters a state was computed that a request made use of."""
        here = Setting.of(row.setting)
        origin = self._stale.get(source, source)
        there = self._settings.get(origin)
        through = f" by {origin!r}" if origin != source else ""
        if there is None:
            return "computed before"
        if there == here:
            return f"computed{through} under the same adapters, {here}"
        return f"computed{through} under {there}, and here is {here}"


def _divided(events: Iterable[Event]) -> tuple[list[Event], list[Event]]:
    """What still belongs to the step before, and what this one has caused.

    The log is written by another thread, and may be behind.
    """
    found = list(events)
    own = next((i for i, event in enumerate(found) if isinstance(event, _FIRST)), None)
    if own is None:  # no request
        own = max((i + 1 for i, event in enumerate(found) if isinstance(event, _LAST)), default=0)
    return found[:own], found[own:]


def _chosen(row: RequestRow, course: Course) -> str | None:
    """How the slot was chosen; builds before b9725 do not say so where one was asked for."""
    if course.selected is not None:
        return course.selected.how
    return How.BY_ID if row.prompt_tokens and row.slot_asked is not None else None


def _read_again(row: RequestRow) -> int:
    return 0 if row.cache_n is None else max(0, row.possible - row.cache_n)


def _without_log(row: RequestRow) -> RequestRow:
    """A step on a server whose log is somebody else's: what the reply itself shows, and no more."""
    row = replace(row, chosen=_chosen(row, Course()), read_again=_read_again(row))
    kinds = {kind for kind, _ in row.failures}
    if not kinds and not row.read_again:
        return row
    if kinds and not kinds & _OF_REUSE:
        return replace(row, reason=_other(row, Course()))
    if row.cache_n == 0 and Kind.WRONG_ANSWER in kinds and Kind.LOST_REUSE not in kinds:
        return replace(row, reason=_NOTHING_REUSED)
    text = "that of a server that was attached to"
    return replace(row, reason=Reason(cause=Cause.NOT_READ, text=text))


def _other(row: RequestRow, course: Course) -> Reason:
    """Of a failure that has nothing to do with reuse."""
    kind, message = row.failures[0]
    return Reason(cause=_OTHER_KINDS.get(kind, Cause.UNKNOWN), text=course.aborted or message)
