"""Whether a build may be deployed the way somebody runs it: for people, Markdown and programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from harness.check import Check, LeftOut, Outcome, Status, reasons_of, status_of
from harness.ledger import Run, VerdictRow
from harness.models.synthetic.store import MODELS
from harness.report.format import Block, Line, Part, Table
from harness.report.terminal import abbreviated, bugs
from harness.report.wording import item_name, ref_without_path, shown, titled, without_paths

SCHEMA = 2

_HEAD = ("", "of tested", "untested", "scenario")
_FINDINGS = ("scenario", "found", "like", "why", "in")
_NO_VERDICT = ("no verdict in", "scenarios", "error")
_LEGEND = {
    Status.FAILS: "reuse is lost, wrong or miscounted in some configuration",
    Status.ACCEPTED: "fails just as a known bug does that the config file accepts",
    Status.HOLDS: "holds in every configuration that reached a verdict",
    Status.ERROR: "reached no verdict: the server or the harness had other trouble",
    Status.NOT_TESTED: "needs other flags than these; this is not counted against the build",
}
_NEVER = "several requests at a time or cancelled ones, images and audio, draft models, speed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked for, as far as a report repeats it."""

    ref: str
    """The build, as in a command that checks it again."""
    config: str | None = None
    """The path of the config file."""
    accepted: tuple[str, ...] = ()
    """The issues that the config file accepts."""
    left_out: tuple[str, ...] = ()
    """The options that chose among scenarios: `-k 'x'`."""

    def command(self, name: str, *refs: str) -> str:
        """Return a command on these builds with this config file."""
        config = [] if self.config is None else ["--config", self.config]
        return shlex.join(["llama-harness", name, *refs, *config])

    def without_paths(self) -> Asked:
        """Return the same, without paths of this machine."""
        config = None if self.config is None else self.config.rpartition("/")[2]
        return replace(self, ref=ref_without_path(self.ref), config=config)


def parts(run: Run, found: Check, asked: Asked) -> Iterator[Part]:
    """Yield the report for a terminal; the last line says whether the build may be deployed."""
    build = run.facts["builds"][0]
    yield f"build: {titled(build)}, {build['path']}"
    yield from _about(run)
    yield Table(_HEAD, [_row(one) for one in found.outcomes if one.status is not Status.NOT_TESTED])
    yield Table(_FINDINGS, [row for one in found.outcomes for row in _findings(one)])
    yield Table(_NO_VERDICT, [*_troubles(found)])
    yield from bugs(found.rows)
    yield from _notes(found)
    yield from _not_tested(run, found, asked)
    yield from _to_leave_out(run, found, asked)
    yield from _to_accept(found, asked)
    yield from _totals(found)
    yield Line(verdict(run, found, asked))


def page(run: Run, found: Check, asked: Asked) -> Iterator[Part]:
    """Yield the report for Markdown: the verdict and the counts first, and no local paths."""

    def clean(part: Part) -> Part:
        if isinstance(part, str):
            return without_paths(part)
        if not isinstance(part, Table):
            return part
        rows = [[without_paths(cell) for cell in row] for row in part.rows]
        return Table(part.head, rows)

    asked = asked.without_paths()
    yield clean(verdict(run, found, asked))
    yield from map(clean, _totals(found))
    yield from (f"{s.value}: {text}" for s, text in _LEGEND.items() if found.scenarios(s))
    yield f"build: {titled(run.facts['builds'][0])}"
    yield from map(clean, _about(run))
    tested = [one for one in found.outcomes if one.status is not Status.NOT_TESTED]
    yield Table(_HEAD, [_row(one) for one in tested])
    yield clean(Table(_FINDINGS, [row for one in found.outcomes for row in _findings(one)]))
    yield clean(Table(_NO_VERDICT, [*_troubles(found)]))
    yield Block([*_again(found, asked)], "sh", "Run one of these again")
    yield from bugs(found.rows)
    yield from map(clean, _notes(found))
    yield from map(clean, _not_tested(run, found, asked))
    yield from map(clean, _to_leave_out(run, found, asked))
    yield from map(clean, _to_accept(found, asked))


def facts(run: Run, found: Check, asked: Asked) -> dict[str, Any]:
    """Return the report for programs; `schema` changes with the meaning of any field."""
    return {
        "schema": SCHEMA,
        "may_deploy": found.may_deploy,
        "verdict": verdict(run, found, asked),
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
        "accept": [*_acceptable(found, asked)],
        "errors": [
            {
                "reason": trouble.reason,
                "whole_models": list(trouble.models),
                "scenarios": list(trouble.scenarios),
                "configurations": len(trouble.rows),
            }
            for trouble in found.troubles
        ],
        "not_tested": dict(found.not_tested),
        "left_out": [*_not_asked(run, asked)],
    }


def verdict(run: Run, found: Check, asked: Asked) -> str:
    """Return the answer in one line."""
    name = str(run.facts["builds"][0]["id"])
    flags = "these flags" if run.facts["server_args"] else "default flags"
    options = [option.split()[0] for option in asked.left_out]
    part = f" ({' and '.join(options)} only)" if options else ""
    holds, accepted = found.scenarios(Status.HOLDS), found.scenarios(Status.ACCEPTED)
    good = [f"{_count(holds)} {'holds' if holds == 1 else 'hold'}"] if holds or not accepted else []
    if accepted:
        number = str(accepted) if good else _count(accepted)
        good.append(f"{number} {'fails' if accepted == 1 else 'fail'} as accepted")
    if found.may_deploy:
        return f"{name} may be deployed with {flags}{part}: {', '.join(good)}"
    if found.may_deploy is False:
        fails = found.scenarios(Status.FAILS)
        known = fails - found.unknown_failures
        like = f" ({known} known)" if known else ""
        verb = "fails" if fails == 1 else "fail"
        return f"{name} should not be deployed with {flags}{part}: {_count(fails)} {verb}{like}"
    errors = found.configurations(Status.ERROR)
    if not errors:
        return "cannot say: no scenario reached a verdict"
    models = list(dict.fromkeys(m for trouble in found.troubles for m in trouble.models))
    where = f" with {', '.join(models)}" if models else ""
    if not (holds or accepted):
        return f"cannot say: errors{where}, and no scenario reached a verdict"
    trouble = f"{errors} error{'' if errors == 1 else 's'}{where}"
    if models and all(trouble.at_start for trouble in found.troubles):
        trouble = f"{', '.join(models)} {'does' if len(models) == 1 else 'do'} not start"
    return f"cannot say: {', '.join(good)}, but {trouble}"


def _about(run: Run) -> Iterator[str]:
    models = (f"{model['name']} ({model['memory']})" for model in run.facts["models"])
    yield f"models: {', '.join(models)}"
    yield f"server arguments: {shlex.join(run.facts['server_args']) or 'the defaults'}"


def _row(outcome: Outcome) -> tuple[str, ...]:
    """Return the cells of a scenario."""
    counts = {status: len(outcome.those(status)) for status in Status}
    share = f"{counts[outcome.status]} of {len(outcome.rows) - counts[Status.NOT_TESTED]}"
    untested = str(counts[Status.NOT_TESTED] or "")
    return outcome.status.value, share, untested, outcome.scenario + _errors(outcome)


def _errors(outcome: Outcome) -> str:
    """Return which models gave no verdict, where others did."""
    rows = outcome.those(Status.ERROR)
    if not rows or outcome.status is Status.ERROR:
        return ""
    models = dict.fromkeys(row.model for row in rows)
    tried = {row.model for row in outcome.rows if status_of(row) is not Status.NOT_TESTED}
    return f" ({len(tried - {*models})} of {len(tried)} models; {', '.join(models)}: error)"


def _findings(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """Yield how and why configurations fail: those that fail alike share a row."""
    for rows in _alike(outcome):
        row = rows[0]
        wheres = ("-".join(filter(None, [r.model, r.configuration])) for r in rows)
        like = row.issue or ""
        yield outcome.scenario, _said(row), like, str(row.why or ""), abbreviated(wheres)


def _alike(outcome: Outcome) -> list[list[VerdictRow]]:
    """Return the configurations that fail, those that fail alike together."""
    told: dict[tuple[object, ...], list[VerdictRow]] = {}
    for row in sorted(outcome.rows, key=lambda row: [*Status].index(status_of(row))):
        if status_of(row) in (Status.FAILS, Status.ACCEPTED):
            told.setdefault(_sameness(row), []).append(row)
    return [*told.values()]


def _sameness(row: VerdictRow) -> tuple[object, ...]:
    """Return all that is said of a row, but for the numbers in the words of a reason."""
    why = row.why
    return status_of(row), row.signature, row.issue, row.reason, why and why.cause


def _said(row: VerdictRow) -> str:
    """Return how a configuration fails, and what else there is to know."""
    return "; ".join(filter(None, [shown(row.signature), row.reason]))


def _notes(found: Check) -> Iterator[str]:
    """Yield what there is to know of configurations that hold all the same."""
    rows = (row for row in found.rows if status_of(row) is Status.HOLDS and row.reason)
    for reason, number in reasons_of(rows).items():
        yield f"{_configurations(number)} {'holds' if number == 1 else 'hold'}: {reason}"


def _troubles(found: Check) -> Iterator[tuple[str, ...]]:
    """Yield a row an error, however many scenarios had it."""
    for trouble in found.troubles:
        wheres = ("-".join(filter(None, [r.model, r.configuration])) for r in trouble.rows)
        whole = {row.model for row in trouble.rows} == {*trouble.models}
        where = f"all of {', '.join(trouble.models)}" if whole else abbreviated({*wheres})
        where += ": the server does not start" if trouble.at_start else ""
        names = "all" if whole else ", ".join(trouble.scenarios)
        yield f"{where} ({_configurations(len(trouble.rows))})", names, trouble.reason


def _again(found: Check, asked: Asked) -> Iterator[str]:
    """Yield a command for each row of the findings and errors."""
    command = asked.command("check", asked.ref)
    firsts = [rows[0] for one in found.outcomes for rows in _alike(one)]
    for row in [*firsts, *(trouble.rows[0] for trouble in found.troubles)]:
        keyword = item_name(row.scenario, row.model, row.configuration)
        yield f"{command} -k {shlex.quote(keyword)}"


def _not_tested(run: Run, found: Check, asked: Asked) -> Iterator[str]:
    """Yield what the flags leave out, a line each, and what else was not tested."""
    flags: dict[str, list[LeftOut]] = {}
    for left in found.left_out:
        flags.setdefault(left.flag, []).append(left)
    for flag, lefts in flags.items():
        count = _configurations(sum(left.configurations for left in lefts))
        needs = ", ".join(
            left.needs if len(lefts) == 1 else f"{left.needs} ({left.configurations})"
            for left in lefts
        )
        yield f"your {flag} leaves out {count} that need {needs}"
    names = [one.scenario for one in found.outcomes if one.status is Status.NOT_TESTED]
    if names:
        yield f"not tested at all: {_count(len(names))}: {', '.join(names)}"
    for reason, number in found.not_testable.items():
        yield f"not tested: {_configurations(number)}: {reason}"
    yield from (f"not tested: {text}" for text in _not_asked(run, asked))
    yield f"never tested: {_NEVER}"


def _to_leave_out(run: Run, found: Check, asked: Asked) -> Iterator[Part]:
    """Yield what to write into the config file to leave out models that do not start."""
    models = [model["name"] for model in run.facts["models"] if model["name"] in MODELS]
    dead = {m for trouble in found.troubles if trouble.at_start for m in trouble.models}
    rest = [name for name in models if name not in dead]
    if dead and rest:
        file = asked.config or "a file for --config"
        yield f"to leave out {', '.join(sorted(dead))}, write into {file}:"
        yield Block([f'memory = "{",".join(rest)}"'], "toml")


def _acceptable(found: Check, asked: Asked) -> tuple[str, ...]:
    """Return the issues that are accepted, and those that failures look like."""
    return tuple(dict.fromkeys([*asked.accepted, *found.known_bugs]))


def _to_accept(found: Check, asked: Asked) -> Iterator[Part]:
    """Yield what to write into the config file to accept the known bugs that fail."""
    if not found.known_bugs:
        return
    yield "some failures look like known bugs; this says if that is worse than what you run:"
    yield Block([asked.command("compare", "OLD", asked.ref)], "sh")
    yield f"to accept them, write into {asked.config or 'a file for --config'}:"
    entries = (
        f"    {json.dumps(issue, ensure_ascii=False)}," for issue in _acceptable(found, asked)
    )
    yield Block(["accept = [", *entries, "]"], "toml")


def _totals(found: Check) -> Iterator[str]:
    if not found.outcomes:
        return
    scenarios = (f"{found.scenarios(s)} {s}" for s in Status if found.scenarios(s))
    yield f"scenarios: {', '.join(scenarios)}"
    words = {
        Status.FAILS: "fail",
        Status.ACCEPTED: "fail as accepted",
        Status.HOLDS: "hold",
        Status.ERROR: "without a verdict for an error",
        Status.NOT_TESTED: "not tested",
    }
    numbers = {said: found.configurations(status) for status, said in words.items()}
    yield f"configurations: {', '.join(f'{n} {said}' for said, n in numbers.items() if n)}"


def _count(number: int) -> str:
    return f"{number} scenario{'' if number == 1 else 's'}"


def _configurations(count: int) -> str:
    return f"{count} configuration{'' if count == 1 else 's'}"


def _not_asked(run: Run, asked: Asked) -> Iterator[str]:
    """Yield what the run was not about."""
    yield from (f"what {option} leaves out" for option in asked.left_out)
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
