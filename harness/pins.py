"""Builds the project tracks, what each is expected to do, and whether it does."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from harness.builds.ref import parse
from harness.errors import HarnessError, UsageProblem
from harness.expect import Kind
from harness.ledger import Verdict, VerdictRow
from harness.models.published import PUBLISHED
from harness.models.synthetic.store import MODELS


class Numbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a step is expected to reuse and to read; None where nobody said."""

    cache_n: int | None = None
    prompt_n: int | None = None

    def __str__(self) -> str:
        shown = (self.cache_n, self.prompt_n)
        return "/".join("-" if number is None else str(number) for number in shown)


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one scenario is expected to show, in one configuration, with one model."""

    pins: tuple[str, ...]
    """The names of the builds it is expected of."""
    scenario: str
    configuration: str
    model: str
    fails: tuple[str, ...]
    """The failed `step: kind` pairs; empty where it holds."""
    steps: dict[str, Numbers] = {}  # msgspec makes a new one for each

    def __post_init__(self) -> None:
        if wrong := [entry for entry in self.fails if _kind(entry) not in set(Kind)]:
            raise ValueError(f"not `step: kind`: {', '.join(wrong)}")
        if self.model not in {*MODELS, *PUBLISHED}:
            raise ValueError(f"no such model: {self.model}")


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A build that is tracked."""

    name: str
    ref: str
    what: str
    said_by: str

    def __post_init__(self) -> None:
        try:
            parse(self.ref)
        except HarnessError as error:
            raise ValueError(str(error)) from None


class Pins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `pins.toml` has."""

    pin: tuple[Pin, ...]
    expect: tuple[Expectation, ...]

    def __post_init__(self) -> None:
        names = [pin.name for pin in self.pin]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"there are two pins {', '.join(twice)}")
        meant = {name for expectation in self.expect for name in expectation.pins}
        if different := sorted(meant ^ set(names)):
            raise ValueError(f"not both a pin and expected to do something: {', '.join(different)}")

    def of(self, pin: Pin) -> tuple[Expectation, ...]:
        """What is expected of a build."""
        return tuple(e for e in self.expect if pin.name in e.pins)

    def named(self, names: Sequence[str]) -> tuple[Pin, ...]:
        """Those named, or all. Raises `UsageProblem` for a name that is none."""
        known = {pin.name: pin for pin in self.pin}
        if unknown := [name for name in names if name not in known]:
            raise UsageProblem(f"no pin {', '.join(unknown)}", hint=f"there are {', '.join(known)}")
        return tuple(known[name] for name in names) or self.pin


class Standing(StrEnum):
    """How what a build does compares with what it is expected to do, the worst first."""

    NEWLY_FAILING = "newly failing"
    """It was to hold, or to fail in other ways only."""
    DIFFERS = "other numbers"
    """The same verdict with the same model, and a step reuses or reads another number."""
    NO_VERDICT = "no verdict"
    """The scenario was not tested, or not judged."""
    NOT_OBTAINED = "could not be obtained"
    """The build, or the model it is to be tested with."""
    DOES_NOT_RUN = "does not run here"
    """The build ends with an instruction that this CPU does not have."""
    NEWLY_FIXED = "newly fixed"
    """It was to fail, and holds, or fails in fewer ways."""
    AGREED = "agreed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came of one expectation, or of a pin whose build could not be had."""

    pin: Pin
    expectation: Expectation | None
    standing: Standing
    build: str = ""
    """What was tested, in words."""
    model: str = ""
    """With which model."""
    found: str = ""
    """What it did, or why nothing is known."""


def load(path: Path | None = None) -> Pins:
    """The pins of a file, by default those that come with the harness.

    Raises `UsageProblem` for a file that is no list of pins.
    """
    path = path or Path(__file__).with_name("pins.toml")
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Pins)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise UsageProblem(f"{path} is not a list of pins: {error}") from None


def finding(
    pin: Pin, expectation: Expectation, row: VerdictRow | None, *, build: str, model: str
) -> Finding:
    """How a verdict compares; with another model than expected, the verdict alone."""
    standing, found = _standing(expectation, row, same_model=model == expectation.model)
    return Finding(
        pin=pin,
        expectation=expectation,
        standing=standing,
        build=build,
        model=model,
        found=found,
    )


def _standing(
    expectation: Expectation, row: VerdictRow | None, *, same_model: bool
) -> tuple[Standing, str]:
    if row is None:
        return Standing.NO_VERDICT, "there is no such scenario with this model"
    if row.verdict not in (Verdict.HOLDS, Verdict.FAILED):
        return Standing.NO_VERDICT, f"{row.verdict}: {row.reason}" if row.reason else row.verdict
    expected, found = set(expectation.fails), set(row.signature)
    said = "; ".join(sorted(found)) or "holds"
    if found - expected:
        return Standing.NEWLY_FAILING, said
    if expected - found:
        return Standing.NEWLY_FIXED, said
    others = _other_numbers(expectation.steps, row) if same_model else []
    return (Standing.DIFFERS, "; ".join(others)) if others else (Standing.AGREED, said)


def _other_numbers(expected: Mapping[str, Numbers], row: VerdictRow) -> list[str]:
    """The steps that reused or read another number of tokens, in words."""
    requests = {request.step: request for request in row.requests}
    others = []
    for step, numbers in expected.items():
        request = requests.get(step)
        pairs = (
            (numbers.cache_n, request and request.cache_n),
            (numbers.prompt_n, request and request.prompt_n),
        )
        if any(wanted is not None and wanted != found for wanted, found in pairs):
            others.append(f"{step}: {request.reuse if request else 'no such step'}")
    return others


def _kind(entry: str) -> str:
    return entry.rpartition(": ")[2]
