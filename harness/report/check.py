"""Whether a build does what it should the way somebody runs it: a table, and one JSON object."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from harness.check import Check, Outcome, Status, reasons_of, status_of
from harness.ledger import Reason, Run, VerdictRow
from harness.models.synthetic.store import MODELS
from harness.report.format import Part, Table
from harness.report.terminal import abbreviated, bugs
from harness.report.wording import shown, titled

SCHEMA = 1

_HEAD = ("", "scenario", "configurations", "not tested, because it")
_FINDINGS = ("scenario", "found", "like", "why", "in")
_WORDS = {
    Status.FAILS: "fail",
    Status.ERROR: "without a verdict",
    Status.ACCEPTED: "fail as accepted",
    Status.HOLDS: "hold",
    Status.NOT_TESTED: "not tested",
}
_NAMED = 2
"""Reasons that are named for a scenario; all are below the table."""
_NEVER = "several requests at a time or cancelled ones, images and audio, draft models, speed"


def parts(run: Run, found: Check, left_out: Sequence[str]) -> Iterator[Part]:
    """For people: what was run, a row a scenario, the totals, and what was not tested."""
    facts = run.facts
    build = facts["builds"][0]
    yield f"build: {titled(build)}, {build['path']}"
    models = (f"{model['name']} ({model['memory']})" for model in facts["models"])
    yield f"models: {', '.join(models)}"
    yield f"server arguments: {shlex.join(facts['server_args']) or 'the defaults'}"
    yield Table(_HEAD, [_row(one) for one in found.outcomes])
    yield Table(_FINDINGS, [row for one in found.outcomes for row in _findings(one)])
    yield from bugs(row for one in found.outcomes for row in one.rows)
    yield from _totals(found)
    for reason, count in found.not_tested.items():
        yield f"not tested: {_configurations(count)}: {reason}"
    yield from (f"not tested: {text}" for text in _not_asked(run, left_out))
    yield f"never tested: {_NEVER}"


def facts(run: Run, found: Check, left_out: Sequence[str]) -> dict[str, Any]:
    """For programs; `schema` changes with the meaning of any field."""
    return {
        "schema": SCHEMA,
        "build": run.facts["builds"][0],
        "models": run.facts["models"],
        "server_args": run.facts["server_args"],
        "device": run.facts["device"],
        "counts": {
            what: {status.name.lower(): count(status) for status in Status}
            for what, count in (
                ("scenarios", found.scenarios),
                ("configurations", found.configurations),
            )
        },
        "scenarios": [_outcome_facts(outcome) for outcome in found.outcomes],
        "not_tested": dict(found.not_tested),
        "left_out": [*_not_asked(run, left_out)],
    }


def _row(outcome: Outcome) -> tuple[str, ...]:
    """A scenario, and why it was not tested, where it was not at all."""
    reasons = reasons_of(outcome.rows) if outcome.status is Status.NOT_TESTED else {}
    whole = len(outcome.rows)
    told = [why if count == whole else f"{why} ({count})" for why, count in reasons.items()]
    if len(told) > _NAMED:
        told[_NAMED:] = [f"and {len(told) - _NAMED} more"]
    return outcome.status.value, outcome.scenario, _share(outcome), "; ".join(told)


def _share(outcome: Outcome) -> str:
    """In how many configurations of how many, and what came of the rest where that is worth it."""
    counts = {status: len(outcome.those(status)) for status in Status}
    share = f"{counts[outcome.status]} of {len(outcome.rows)}"
    others = (
        f"{counts[status]} {_WORDS[status]}"
        for status in (Status.ERROR, Status.NOT_TESTED)
        if counts[status] and status is not outcome.status
    )
    return ", ".join([share, *others])


def _findings(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """What there is to say of what was tested: what is the same of several shares a row."""
    told: dict[tuple[object, ...], list[VerdictRow]] = {}
    for row in sorted(outcome.rows, key=lambda row: [*Status].index(status_of(row))):
        if status_of(row) is not Status.NOT_TESTED and _said(row):
            told.setdefault(_sameness(row), []).append(row)
    scenario = outcome.scenario
    for row, *others in told.values():
        wheres = ("-".join(filter(None, [r.model, r.configuration])) for r in (row, *others))
        like = row.issue or ""
        yield scenario, _said(row), like, str(_why(row) or ""), abbreviated(wheres)
        scenario = ""


def _sameness(row: VerdictRow) -> tuple[object, ...]:
    """All that is said of a row, but for the numbers in the words of a reason."""
    why = _why(row)
    return status_of(row), row.signature, row.issue, row.reason, why and why.cause


def _said(row: VerdictRow) -> str:
    """How it fails; of one that does not, what there is to know all the same."""
    if row.signature or not row.reason:
        return "; ".join(filter(None, [shown(row.signature), row.reason]))
    return f"no verdict: {row.reason}" if status_of(row) is Status.ERROR else f"holds: {row.reason}"


def _why(row: VerdictRow) -> Reason | None:
    """Why the first step failed that did."""
    return next((step.reason for step in row.requests if step.failures), None)


def _totals(found: Check) -> Iterator[str]:
    verdicts = (Status.FAILS, Status.ACCEPTED, Status.HOLDS)
    if not any(map(found.configurations, verdicts)):
        yield "nothing was found out: no scenario reached a verdict"
    if not found.outcomes:
        return
    scenarios = (f"{found.scenarios(status)} {status}" for status in Status)
    yield f"scenarios: {', '.join(text for text in scenarios if text[0] != '0')}"
    counts = ((found.configurations(status), words) for status, words in _WORDS.items())
    yield f"configurations: {', '.join(f'{count} {words}' for count, words in counts if count)}"


def _configurations(count: int) -> str:
    return f"{count} configuration{'s' if count > 1 else ''}"


def _not_asked(run: Run, left_out: Sequence[str]) -> Iterator[str]:
    """What the run was not about."""
    yield from (f"what {option} leaves out" for option in left_out)
    if all(model["name"] in MODELS for model in run.facts["models"]):
        yield "a model of your own: these are generated ones"
    elif not all(model["adapters"] for model in run.facts["models"]):
        yield "adapters: the model comes without"


def _outcome_facts(outcome: Outcome) -> dict[str, Any]:
    return {
        "scenario": outcome.scenario,
        "status": outcome.status.value,
        "configurations": {s.name.lower(): len(outcome.those(s)) for s in Status},
        "found": [
            {
                "model": row.model,
                "configuration": row.configuration,
                "status": status_of(row).value,
                "signature": list(row.signature),
                "issue": row.issue,
                "reason": row.reason,
                "steps": [
                    {"step": step.step, "cache_n": step.cache_n, "prompt_n": step.prompt_n}
                    | {"failures": [kind for kind, _ in step.failures]}
                    | {"why": str(step.reason) if step.reason else None}
                    for step in row.requests
                    if step.failures
                ],
            }
            for row in outcome.rows
        ],
    }
