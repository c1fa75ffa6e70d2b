"""How signatures, issues and builds are put into words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_ISSUES = "https://github.com/ggml-org/llama.cpp/issues/"


def shown(signature: Iterable[str]) -> str:
    """A signature, the kinds of a step together: `P: wrong_answer + wrong_reuse; Q: crash`."""
    steps: dict[str, list[str]] = {}
    for entry in signature:
        step, _, kind = entry.rpartition(": ")
        steps.setdefault(step, []).append(kind)
    return "; ".join(f"{step}: {' + '.join(kinds)}" for step, kinds in steps.items())


def link(issue: str) -> str:
    """Where an issue can be read; empty for one that is not reported."""
    number = issue.removeprefix("#")
    return f"{_ISSUES}{number}" if number.isdecimal() else ""


def titled(build: Mapping[str, Any]) -> str:
    """`b10434 (7e4c0a9)`, by what a ledger says; of a build without a number just its commit."""
    name, commit = str(build["id"]), build["commit"]
    return f"{name} ({commit})" if commit and commit != name else name
