"""What is expected of the tracked builds, and what they did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from harness.pins import Expectation, Finding, Pins, Standing
from harness.report.format import Part, Table
from harness.report.wording import shown

SCHEMA = 1
_LIST = ("pin", "ref", "what", "scenario", "model", "expected", "said by")
_CHECK = ("pin", "build", "scenario", "model", "expected", "found", "standing")

_UNTRIED = (Standing.NOT_OBTAINED, Standing.DOES_NOT_RUN)
"""Standings whose reason is long: a line below the table."""


def listed(pins: Pins) -> Iterator[Part]:
    """For people: each pin with what is expected of it."""
    rows = [
        (pin.name, pin.ref, pin.what, _scenario(one), one.model, expected(one), pin.said_by)
        for pin in pins.pin
        for one in pins.of(pin)
    ]
    yield Table(_LIST, rows)


def parts(findings: Sequence[Finding]) -> Iterator[Part]:
    """For people: what each did, the worst first, and the totals."""
    worst = sorted(findings, key=lambda finding: [*Standing].index(finding.standing))
    yield Table(_CHECK, [_row(finding) for finding in worst])
    for finding in worst:
        if finding.standing in _UNTRIED:
            yield f"{finding.pin.name}: {finding.found}"
    counts = Counter(finding.standing for finding in findings)
    yield ", ".join(f"{standing}: {counts[standing]}" for standing in Standing if counts[standing])


def facts(pins: Pins, findings: Sequence[Finding]) -> dict[str, Any]:
    """For programs; `schema` changes with the meaning of any field."""
    return {
        "schema": SCHEMA,
        "pins": msgspec.to_builtins(pins.pin),
        "expectations": msgspec.to_builtins(pins.expect),
        "findings": [
            {
                "pin": finding.pin.name,
                "ref": finding.pin.ref,
                "standing": finding.standing.value,
                "build": finding.build,
                "model": finding.model,
                "found": finding.found,
                "expectation": finding.expectation and msgspec.to_builtins(finding.expectation),
            }
            for finding in findings
        ],
    }


def expected(one: Expectation) -> str:
    """What is expected, in words: `fails: P: crash (P: 0/12)`."""
    verdict = f"fails: {shown(sorted(one.fails))}" if one.fails else "holds"
    numbers = ", ".join(f"{step}: {found}" for step, found in one.steps.items())
    return f"{verdict} ({numbers})" if numbers else verdict


def _row(finding: Finding) -> tuple[str, ...]:
    one = finding.expectation
    return (
        finding.pin.name,
        finding.build or finding.pin.ref,
        _scenario(one) if one else "all",
        finding.model or "-",
        expected(one) if one else "-",
        finding.found if finding.standing not in _UNTRIED else "-",
        finding.standing.value,
    )


def _scenario(one: Expectation) -> str:
    return f"{one.scenario}[{one.configuration}]"
