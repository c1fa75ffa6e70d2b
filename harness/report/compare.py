"""What changed from one build to another: a table of the changes, and one JSON object."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.compare import Change, Comparison, Kind, StepChange
from harness.ledger import RequestRow, Run, VerdictRow
from harness.models.synthetic.store import MODELS
from harness.report.format import Block, Part, Table
from harness.report.terminal import abbreviated, bugs
from harness.report.wording import item_name, ref_without_path, shown, titled, without_paths

SCHEMA = 1
_HEAD = ("change", "scenario", "step", "cache_n/prompt_n", "tokens", "configurations", "what")
_EXPLAINED = (Kind.BROKEN, Kind.REUSE_DOWN)
"""Changes of which it is said why."""
_NONE = "-"


_LEGEND = {
    Kind.BROKEN: "fails in a way it did not, or gives an error in place of a verdict",
    Kind.REUSE_DOWN: "the same verdict, and a step reuses fewer tokens of the same prompt",
    Kind.NO_LONGER_TESTED: "reached a verdict on base only",
    Kind.NEWLY_TESTED: "reached a verdict on head only",
    Kind.REUSE_UP: "the same verdict, and steps reuse more tokens of the same prompt",
    Kind.FIXED: "fails in fewer ways than before, or in none",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked for, as far as a report repeats it."""

    refs: tuple[str, ...]
    """Both builds, as in a command that compares them again."""
    config: str | None = None
    memory: str | None = None


def parts(base: Run, head: Run, found: Comparison) -> Iterator[Part]:
    """Yield the report for a terminal: which builds, the table, and the totals."""
    for name, run in (("base", base), ("head", head)):
        build = run.facts["builds"][0]
        yield f"{name}: {titled(build)}, {build['path']}"
    yield from _differences(base, head)
    yield Table(_HEAD, [*_rows(found.changes)])
    yield from _named_bugs(found)
    yield from _totals(found)


def page(base: Run, head: Run, found: Comparison, asked: Asked) -> Iterator[Part]:
    """Yield the report for Markdown: the counts first, and no local paths."""
    yield from _totals(found)
    yield from (f"{kind}: {_LEGEND[kind]}" for kind, count in found.counts.items() if count)
    yield f"base: {titled(base.facts['builds'][0])}"
    yield f"head: {titled(head.facts['builds'][0])}"
    yield from map(without_paths, _differences(base, head))
    yield Table(_HEAD, [[without_paths(cell) for cell in row] for row in _rows(found.changes)])
    yield Block([*_again(found.changes, asked)], "sh", "Compare one of these again")
    yield from _named_bugs(found)


def _differences(base: Run, head: Run) -> Iterator[str]:
    """Yield what the runs differ in besides the builds, which a change may be due to."""
    args = [shlex.join(run.facts.get("server_args", ())) for run in (base, head)]
    if args[0] != args[1]:
        said = (arg or "the defaults" for arg in args)
        yield "the runs differ in server arguments: base {}, head {}".format(*said)
    models = [[model["name"] for model in run.facts["models"]] for run in (base, head)]
    if models[0] != models[1]:
        yield "the runs differ in models: base {}, head {}".format(*map(", ".join, models))


def _named_bugs(found: Comparison) -> list[str]:
    return bugs(c.after for c in found.changes if c.after and c.kind is Kind.BROKEN)


def _again(changes: Sequence[Change], asked: Asked) -> Iterator[str]:
    """Yield a command for each row of the table."""
    words = ["llama-harness", "compare", *map(ref_without_path, asked.refs)]
    words += [] if asked.config is None else ["--config", asked.config]
    for group in _merged(changes).values():
        row = group[0].row
        memory = f"--memory={row.model}" if row.model in MODELS and asked.config is None else ""
        keyword = item_name(row.scenario, row.model, row.configuration)
        yield shlex.join([*words, *filter(None, [memory]), "-k", keyword])


def facts(base: Run, head: Run, found: Comparison) -> dict[str, Any]:
    """For programs; `schema` changes with the meaning of any field."""
    return {
        "schema": SCHEMA,
        "base": base.facts["builds"][0],
        "head": head.facts["builds"][0],
        "models": head.facts["models"],
        "counts": {
            **{kind.value: count for kind, count in found.counts.items()},
            "unchanged": found.unchanged,
            "compared": found.compared,
            "untested": found.untested,
        },
        "changes": [_change_facts(change) for change in found.changes],
    }


@dataclass(frozen=True, slots=True)
class _Line:
    """What is said of one step of a change, or of the change itself."""

    step: str = ""
    reuse: str = ""
    tokens: str = ""
    found: str = ""
    cause: str = ""
    why: str = field(default="", compare=False)
    """The reason; its numbers may differ where all else is the same."""

    def cells(self) -> tuple[str, ...]:
        """As the table shows it."""
        return self.step, self.reuse, self.tokens

    @property
    def what(self) -> str:
        """The failure with its reason, or one of the two."""
        return ": ".join(filter(None, [self.found, self.why]))


def _merged(
    changes: Sequence[Change],
) -> dict[tuple[Kind, str, tuple[_Line, ...]], list[Change]]:
    """Return the changes by what is said of them, configurations of the same change together."""
    merged: dict[tuple[Kind, str, tuple[_Line, ...]], list[Change]] = {}
    for change in changes:
        key = (change.kind, change.row.scenario, tuple(_lines(change)))
        merged.setdefault(key, []).append(change)
    return merged


def _rows(changes: Sequence[Change]) -> Iterator[tuple[str, ...]]:
    """Yield a row for changes that are the same, or as many as there are steps to them."""
    for (kind, scenario, lines), group in _merged(changes).items():
        wheres = ("-".join(filter(None, [c.row.model, c.row.configuration])) for c in group)
        first, where = (kind.value, scenario), abbreviated(wheres)
        for line in lines:
            yield (*first, *line.cells(), where, line.what)
            first, where = ("", ""), ""


def _lines(change: Change) -> Iterator[_Line]:
    if said := _said(change):
        yield _Line(found=said)
    for step in change.steps:
        reason = step.after.reason if step.after and change.kind in _EXPLAINED else None
        yield _Line(
            step=step.step,
            reuse=f"{_reuse(step.before)} -> {_reuse(step.after)}",
            tokens="" if step.tokens is None else f"{step.tokens:+d}",
            found=_kinds(change, step),
            cause=reason.cause if reason else "",
            why=str(reason or ""),
        )


def _said(change: Change) -> str:
    """What there is to say of the verdicts, where the steps do not say it."""
    before, after = change.before, change.after
    if change.kind is Kind.NEWLY_TESTED:
        return f"{_verdict(after)}; before: {_verdict(before)}"
    if change.kind is Kind.FIXED and after and after.signature:
        return f"still {_verdict(after)}"
    if change.kind is Kind.BROKEN and after and after.signature:
        return f"like {after.issue}" if after.issue else ""
    return _verdict(after) if not change.steps else ""


def _verdict(row: VerdictRow | None) -> str:
    if row is None:
        return "no such scenario"
    why = "; ".join(filter(None, [shown(row.signature), row.reason]))
    return f"{row.verdict}: {why}" if why else row.verdict


def _reuse(row: RequestRow | None) -> str:
    """A dash for what was not reached, or is no request for an answer."""
    return row.reuse if row is not None and row.prompt_tokens else _NONE


def _kinds(change: Change, step: StepChange) -> str:
    """The kinds of failure that are new at a step, or gone."""
    entries = (entry.rpartition(": ") for entry in change.new or change.gone)
    kinds = " + ".join(kind for name, _, kind in entries if name == step.step)
    return f"no more {kinds}" if kinds and not change.new else kinds


def _totals(found: Comparison) -> Iterator[str]:
    if not found.compared:
        yield "nothing was compared: no scenario reached a verdict on both"
    counts = [f"{kind}: {count}" for kind, count in found.counts.items() if count]
    untested = [f"no verdict on either: {found.untested}"] if found.untested else []
    yield ", ".join([*counts, f"unchanged: {found.unchanged}", *untested])
    for kind in (Kind.REUSE_DOWN, Kind.REUSE_UP):
        tokens = [change.tokens for change in found.changes if change.kind is kind]
        if tokens:
            yield f"{kind}: {sum(tokens):+d} tokens in all"


def _change_facts(change: Change) -> dict[str, Any]:
    row = change.row
    return {
        "kind": change.kind.value,
        "scenario": row.scenario,
        "configuration": row.configuration,
        "model": row.model,
        "new": list(change.new),
        "gone": list(change.gone),
        "tokens": change.tokens,
        "before": _verdict_facts(change.before),
        "after": _verdict_facts(change.after),
        "steps": [
            {
                "step": step.step,
                "tokens": step.tokens,
                "before": _step_facts(step.before),
                "after": _step_facts(step.after),
            }
            for step in change.steps
        ],
    }


def _verdict_facts(row: VerdictRow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        "verdict": row.verdict.value,
        "signature": list(row.signature),
        "issue": row.issue,
        "reason": row.reason,
    }


def _step_facts(row: RequestRow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        "prompt_tokens": row.prompt_tokens,
        "cache_n": row.cache_n,
        "prompt_n": row.prompt_n,
        "failures": [kind for kind, _ in row.failures],
        "cause": row.reason.cause.value if row.reason else None,
        "reason": row.reason.text if row.reason else None,
    }
