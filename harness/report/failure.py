"""The message of a failing scenario: every step, what was wrong, and the server's own words."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from harness.ledger import RequestRow
from harness.report.table import columns
from harness.scenario import Scenario
from harness.server.log import LogSlice
from harness.setting import Setting
from harness.stage import Step

_MAX_LOG_LINES = 120


def failure_text(scenario: Scenario, *, title: str, closing: Sequence[str]) -> str:
    """Everything a person needs to see why a scenario failed, between a title and last lines."""
    lines = [title, "", *_steps(scenario.steps), ""]
    for step in scenario.steps:
        lines += _wrong(step) or _other_calls_log(step)
    lines.append(f"server: {shlex.join(scenario.server.command)}")
    return "\n".join([*lines, *closing])


def _steps(steps: Sequence[Step]) -> list[str]:
    head = ("step", "prompt", "lora field", "in force", "possible", "expected", "cache_n/prompt_n")
    rows = [(*_cells(i, step.row), _kinds(step.row)) for i, step in enumerate(steps, 1)]
    return columns([(*head, "found"), *rows])


def _cells(number: int, row: RequestRow) -> tuple[str, ...]:
    return (
        f"{number} {row.step}",
        _about(row),
        *_adapters(row),
        str(row.possible) if row.prompt_tokens else "-",
        expected(row),
        row.reuse if row.prompt_tokens else "-",
    )


def _about(row: RequestRow) -> str:
    """What a step was about, in sizes."""
    parts = []
    if row.prompt_tokens:
        parts.append(f"{row.prompt_tokens} tokens")
    if row.file:
        parts.append(f"{row.file.tokens} tokens, {row.file.bytes} bytes")
    if row.slot_asked is not None:
        parts.append(f"slot {row.slot_asked}")
    if not row.cache_prompt:
        parts.append("cache_prompt false")
    if row.stream:
        parts.append("stream")
    if row.note:
        parts.append(row.note)
    return ", ".join(parts) or "-"


def _adapters(row: RequestRow) -> tuple[str, str]:
    """What was said of adapters, and what was in force; nothing where neither matters."""
    if not row.prompt_tokens and row.lora is None:
        return "-", "-"
    return sent(row.lora), str(Setting.of(row.setting))


def sent(lora: dict[str, float] | None) -> str:
    """What a request said of its adapters."""
    if lora is None:
        return "left out"
    return "[]" if not lora else ", ".join(f"{name} {scale:g}" for name, scale in lora.items())


def expected(row: RequestRow) -> str:
    """The bounds of a step's reuse."""
    if not row.prompt_tokens:
        return "-"
    if row.expected is None:
        return "not judged"
    lower, upper = row.expected
    if lower == upper:
        return str(upper)
    return f"at most {upper}" if lower == 0 else f"{lower} to {upper}"


def _kinds(row: RequestRow) -> str:
    return ", ".join(sorted({kind for kind, _ in row.failures})) or "ok"


def _wrong(step: Step) -> list[str]:
    if not step.row.failures:
        return []
    lines = []
    for (kind, message), detail in zip(step.row.failures, step.details, strict=True):
        lines.append(f"{step.row.step}: {kind}: {message}")
        lines += [f"    {line}" for line in detail.splitlines()]
    if step.row.reason:
        lines.append(f"    why: {step.row.reason}")
    if step.row.answer:
        within = f", within {step.row.cold}" if step.row.cold else ""
        lines.append(f"    answers judged by: {step.row.answer}{within}")
    if step.log is not None and not any(step.details):  # a detail has the end of the log
        lines += _logged(step.log)
    return [*lines, ""]


def _other_calls_log(step: Step) -> list[str]:
    """The log of a call that went as it should and may be why a later request did not."""
    if step.row.prompt_tokens or step.log is None or not step.log.text():
        return []
    return [f"{step.row.step}:", *_logged(step.log), ""]


def _logged(log: LogSlice) -> list[str]:
    lines = log.text().splitlines()[-_MAX_LOG_LINES:]
    return ["    what the server logged meanwhile:", *(f"    | {line}" for line in lines)]
