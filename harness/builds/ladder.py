"""The way from a ref to a binary: the store, and then each place that may have it, in order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.builds.acceptance import check_runs, is_accepted
from harness.builds.archive import BadArchive
from harness.builds.base import (
    UPSTREAM,
    Delivery,
    DoesNotBuild,
    Flavour,
    NotForThisCpu,
    NotHere,
    Rung,
    Unsuitable,
    Wanted,
)
from harness.builds.nearest import in_words, nearest
from harness.builds.ref import (
    CommitRef,
    NumberRef,
    PathRef,
    PullRef,
    Ref,
    SdistRef,
    WheelRef,
)
from harness.builds.steps import Steps
from harness.builds.store import Entry, Facts, Store, same_commit
from harness.builds.upstream import Upstream
from harness.errors import DoesNotRun, NotObtained, RequestError, ServerError, UsageProblem
from harness.files import libraries_sha256, sha256_of
from harness.server.capabilities import Capabilities, NoLlamaServer, check_executable, probe
from harness.server.process import Program


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one place had to say."""

    rung: str
    said: str
    trouble: bool = False
    """Whether it might have the build all the same."""
    other_cpu: bool = False
    """Whether it has the build, compiled for another CPU."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A binary that can be run."""

    ref: Ref
    path: Path
    entry: Entry | None
    """Where it is in the store; None for a path."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A build that does not build."""

    ref: Ref
    error: str
    """The first error, in one line."""
    log: Path

    def __str__(self) -> str:
        return f"{self.ref} does not build: {self.error}"


@dataclass(frozen=True, slots=True)
class Missing:
    """A build that nobody has, or that could not be fetched."""

    ref: Ref
    attempts: tuple[Attempt, ...] = ()
    hint: str = ""

    def __str__(self) -> str:
        said = "; ".join(f"{attempt.rung}: {attempt.said}" for attempt in self.attempts)
        if self.other_cpu:
            return f"{self.ref} does not run on this CPU: {said}"
        trouble = any(attempt.trouble for attempt in self.attempts)
        return f"{self.ref} {'cannot be had' if trouble else 'is nowhere'}: {said}"

    @property
    def other_cpu(self) -> bool:
        """Whether a place has the build, and only for another CPU."""
        return any(attempt.other_cpu for attempt in self.attempts)


Outcome = Ready | Broken | Missing


def ready(outcome: Outcome) -> Ready:
    """Return a binary that runs here. Raises `NotObtained` or `DoesNotRun` in one line."""
    if isinstance(outcome, Broken):
        raise NotObtained(str(outcome), hint=f"log: {outcome.log}")
    if isinstance(outcome, Missing):
        kind = DoesNotRun if outcome.other_cpu else NotObtained
        raise kind(str(outcome), hint=outcome.hint)
    return outcome


@dataclass(slots=True, kw_only=True)
class Ladder:
    """Obtains builds into a store. `rungs` are tried in order."""

    store: Store
    rungs: Sequence[Rung]
    upstream: Upstream
    limit: int
    """Bytes the store may have."""
    session: str = "probe"
    """That of the guard under which binaries are tried out."""
    _attempts: list[Attempt] = field(default_factory=list)
    _hint: str = ""

    def obtain(self, ref: Ref, flavour: Flavour, steps: Steps) -> Outcome:
        """What came of it; also that it does not build, or is not to be had, is a value.

        Raises `UsageProblem` for what is ambiguous, or where the store cannot be written,
        `NotObtained` where its disk is full.
        """
        if isinstance(ref, PathRef):
            check_executable(ref.path)
            return Ready(ref, ref.path, None)
        self._attempts, self._hint = [], ""
        try:
            wanted = self._wanted(ref, flavour, steps)
        except NotHere as refusal:
            self._note("source", refusal)
            return Missing(ref, tuple(self._attempts), self._hint)
        only = _only(ref)
        if entry := self._kept(wanted, only):
            return Ready(ref, entry.binary, entry)
        name = f"{wanted.commit or f'b{wanted.number}'}-{flavour}"
        with self.store.lock(name, steps, "obtaining it"):
            if entry := self._kept(wanted, only):
                return Ready(ref, entry.binary, entry)
            return self._climbed(wanted, only, steps)

    def _wanted(self, ref: Ref, flavour: Flavour, steps: Steps) -> Wanted:
        """What a ref stands for; the repository is asked where only it can tell."""
        if isinstance(ref, WheelRef | SdistRef):
            return Wanted(ref=ref, flavour=flavour, number=ref.number)
        if isinstance(ref, NumberRef) and self.upstream.shown == UPSTREAM:
            return Wanted(ref=ref, flavour=flavour, number=ref.number)
        assert not isinstance(ref, PathRef)
        known = Wanted(
            ref=ref,
            flavour=flavour,
            commit=ref.commit if isinstance(ref, CommitRef | PullRef) else None,
            number=ref.number if isinstance(ref, NumberRef) else None,
            repository=self.upstream.shown,
        )
        if self.store.find(known) is not None:
            return known  # nobody needs to be asked
        try:
            commit = self.upstream.resolve(ref, steps)
        except NotHere as refusal:
            if isinstance(ref, CommitRef | NumberRef):  # others may have it
                steps.say(f"source: {refusal.reason}")
                return known
            raise
        return replace(known, commit=commit.name, number=commit.number)

    def _kept(self, wanted: Wanted, only: str | None) -> Entry | None:
        """Find a build in the store that runs here: another machine may share the store."""
        rungs = [only] if only else [None, *(rung.name for rung in self.rungs)]
        for rung in rungs:
            entry = self.store.find(wanted, rung=rung)
            if entry is None and rung is None:
                return None
            if entry is not None and _runs(entry):
                return entry
        return None

    def _climbed(self, wanted: Wanted, only: str | None, steps: Steps) -> Outcome:
        lacking: list[Rung] = []
        found = False
        for rung in self.rungs:
            if only is not None and rung.name != only:
                continue
            start = time.monotonic()
            try:
                entry = self._delivered(rung, wanted, steps, start)
            except NotHere as refusal:
                self._note(rung.name, refusal)
                steps.say(f"{rung.name}: {refusal.reason}")
                found = found or isinstance(refusal, NotForThisCpu | Unsuitable)
                if isinstance(refusal, Unsuitable):
                    break
                if not refusal.trouble:
                    lacking.append(rung)
            except DoesNotBuild as failure:
                return Broken(wanted.ref, failure.error, failure.log)
            else:
                self.store.prune(self.limit)
                steps.say(f"{rung.name}: {entry.facts.title}, {entry.facts.seconds:.0f} s")
                return Ready(wanted.ref, entry.binary, entry)
        near = "" if found else self._nearest(wanted, lacking, steps)
        hint = "; ".join(filter(None, (self._hint, near)))
        return Missing(wanted.ref, tuple(self._attempts), hint)

    def _nearest(self, wanted: Wanted, rungs: Sequence[Rung], steps: Steps) -> str:
        """Tell which builds are nearest to a number that these places do not have.

        Empty for what was not asked for by a number, and where nobody can tell.
        """
        number = wanted.number
        if not isinstance(wanted.ref, NumberRef | WheelRef | SdistRef) or number is None:
            return ""
        places: dict[str, frozenset[int]] = {}
        for rung in rungs:
            with suppress(NotHere), steps.step(f"{rung.name}: asking which builds it has"):
                places[rung.name] = rung.numbers(wanted, steps)
        # A place that lists the number has the build, and something else was wrong there.
        places = {name: has for name, has in places.items() if number not in has}
        options = "" if wanted.flavour is Flavour.CPU else f" --flavour {wanted.flavour}"
        if said := in_words(number, nearest(number, places), options):
            steps.say(said)
        return said

    def _delivered(self, rung: Rung, wanted: Wanted, steps: Steps, start: float) -> Entry:
        with self.store.filling() as directory:
            try:
                delivery = rung.deliver(wanted, directory, steps)
            except BadArchive as error:
                raise NotHere(f"what it has is no good archive: {error.reason}") from None
            binary = directory / delivery.binary
            try:
                capabilities = probe(binary, self.session)
            except DoesNotRun as problem:
                raise NotForThisCpu(problem.message.partition(": ")[2], hint=problem.hint) from None
            except NoLlamaServer as problem:
                raise Unsuitable(problem.message, hint=problem.hint) from None
            except UsageProblem as problem:  # a C library that is too old, say
                raise NotHere(
                    f"what it has cannot be used here: {problem.message}",
                    hint=problem.hint,
                    trouble=True,
                ) from None
            commit, files = _commit(delivery, capabilities, wanted), _files(directory)
            number = _number(delivery, capabilities, wanted)
            _check_runs(binary, capabilities, number)
            facts = Facts(
                commit=commit,
                number=number,
                flavours=tuple(sorted({wanted.flavour, *delivery.also})),
                rung=rung.name,
                source=delivery.source,
                repository=delivery.repository,
                binary=str(delivery.binary),
                files={name: sha256_of(path) for name, path in files.items()},
                size=sum(path.stat().st_size for path in files.values()),
                version=capabilities.version,
                flags=delivery.flags,
                compiler=delivery.compiler,
                archive_sha256=delivery.archive_sha256,
                seconds=round(time.monotonic() - start, 1),
                added=time.time(),
            )
            return self.store.add(directory, facts)

    def _note(self, rung: str, refusal: NotHere) -> None:
        other_cpu = isinstance(refusal, NotForThisCpu)
        self._attempts.append(Attempt(rung, refusal.reason, refusal.trouble, other_cpu))
        self._hint = self._hint or refusal.hint


def _only(ref: Ref) -> str | None:
    """The rung a ref names, where it does."""
    if isinstance(ref, WheelRef):
        return "wheel"
    return "sdist" if isinstance(ref, SdistRef) else None


def _commit(delivery: Delivery, capabilities: Capabilities, wanted: Wanted) -> str | None:
    """What all witnesses agree on, with as many digits as one has; `NotHere` where they do not."""
    said = [delivery.commit, capabilities.commit, wanted.commit]
    known = sorted(filter(None, said), key=len)
    for commit in known:
        if not same_commit(commit, known[-1]):
            raise NotHere(f"what it has is commit {commit}, not {known[-1]}")
    # What was asked for is no witness.
    witnesses = sorted(filter(None, said[:2]), key=len)
    return known[-1] if witnesses else None


def _number(delivery: Delivery, capabilities: Capabilities, wanted: Wanted) -> int | None:
    said = {delivery.number, capabilities.build_number, wanted.number} - {None}
    if len(said) > 1:
        names = " and ".join(f"b{number}" for number in sorted(filter(None, said)))
        raise NotHere(f"what it has is said to be {names}")
    return next(iter(said), None) if delivery.number or capabilities.build_number else None


def _check_runs(binary: Path, capabilities: Capabilities, number: int | None) -> None:
    """Raise `NotForThisCpu` for a build that was compiled for another CPU."""
    title = f"b{number}" if number else capabilities.commit or "the build"
    try:
        check_runs(Program(binary, capabilities), _sums(binary), title=title, number=number)
    except DoesNotRun as problem:
        raise NotForThisCpu(problem.message.partition(": ")[2], hint=problem.hint) from None
    except (ServerError, RequestError):  # whatever else is wrong with it, scenarios report
        return


def _runs(entry: Entry) -> bool:
    """Return whether a build of the store runs on this CPU."""
    if is_accepted(_sums(entry.binary)):
        return True
    try:
        capabilities = probe(entry.binary)
        _check_runs(entry.binary, capabilities, entry.facts.number)
    except (DoesNotRun, NotForThisCpu, UsageProblem):
        return False
    return True


def _sums(binary: Path) -> tuple[str, str | None]:
    return sha256_of(binary), libraries_sha256(binary.parent)


def _files(directory: Path) -> dict[str, Path]:
    """By their names in the directory."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path for path in files}
