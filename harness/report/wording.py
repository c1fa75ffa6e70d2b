"""How signatures, issues and builds are put into words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from harness.models.synthetic.store import MODELS

# A path from the root or the home directory, of two names at least; no URL and no API route.
_LOCAL_PATH = re.compile(r"(?<![\w.:/~-])(?!/v1/)(?:~|/[\w.+@~-]+)(?:/[\w.+@~-]+)*/([\w.+@~-]+)")
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


def item_name(scenario: str, model: str, configuration: str) -> str:
    """Return the name of one test of the suite: what `-k` needs to choose it alone."""
    function = scenario.rpartition("::")[2]
    parts = [model if model in MODELS else "", configuration]
    where = "-".join(filter(None, parts))
    return f"{function}[{where}]" if where else function


def without_paths(text: str) -> str:
    """Return a text in which each path of this machine is reduced to its last name."""
    return _LOCAL_PATH.sub(r"\1", text)


def ref_without_path(ref: str) -> str:
    """Return a ref as it was given, or `PATH` for a path of this machine."""
    path = ref.startswith((".", "~")) or ("/" in ref and not ref.startswith("pull/"))
    return "PATH" if path else ref
