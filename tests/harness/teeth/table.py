"""The form of these tables: by fault and configuration, the failed steps of each scenario."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import pytest

from harness.expect import Kind
from harness.memory import Memory
from harness.models.synthetic.store import MODELS
from harness.prompts import Route
from tests.cache.conftest import ROUTES

Signature = frozenset[str]
"""Failed steps, each as `step: kind`."""

Signatures = Mapping[str, Signature]
"""By test function, or by function and variant (`test_article-wide1`) where variants differ."""


def failed(kind: Kind, *steps: str) -> Signature:
    """These steps, each with this kind of failure."""
    return frozenset(f"{step}: {kind}" for step in steps)


lost = partial(failed, Kind.LOST_REUSE)
stale = partial(failed, Kind.WRONG_REUSE)
wrong = partial(failed, Kind.WRONG_ANSWER)
accounting = partial(failed, Kind.ACCOUNTING)

ONE_SLOT, ONE_SLOT_CHAT = "np1-kvu-completion", "np1-kvu-chat"
FOUR_UNIFIED = "np4-kvu-completion"
"""Upstream's own default."""
FOUR_SLOTS, FOUR_SLOTS_CHAT = "np4-nokvu-completion", "np4-nokvu-chat"


@dataclass(frozen=True, slots=True)
class Row:
    """A fault, and what it does to the scenarios of one configuration."""

    fault: str
    configuration: str
    fails: Signatures
    only: tuple[str, ...] = ()
    """The scenarios that are run, where not all of the configuration are."""
    options: tuple[str, ...] = ()
    known_bug: tuple[str, str] = ("", "")
    """Scenario and configuration of a known bug that is this fault, where it is the real server's.

    On a build that is not known to have it, the row says nothing.
    """
    model: str = "llama"
    """The generated model it is run with."""

    def expected(self, name: str) -> Signature:
        """What one scenario shows; nothing where it must hold."""
        return self.fails.get(name, self.fails.get(name.partition("-")[0], frozenset()))

    def kinds(self, function: str) -> set[str]:
        """The kinds of failure that a test function shows here, in any of its variants."""
        if self.only and function not in self.only:
            return set()
        signatures = (s for name, s in self.fails.items() if name.partition("-")[0] == function)
        return {entry.rpartition(": ")[2] for entry in frozenset().union(*signatures)}


@dataclass(frozen=True, slots=True)
class Family:
    """The scenarios of one file, and what faults do to them."""

    scenarios: ModuleType
    """A module of `tests/cache`."""
    table: tuple[Row, ...]

    @property
    def name(self) -> str:
        """The module's own name."""
        return self.scenarios.__name__.rpartition(".")[2]

    @property
    def functions(self) -> dict[str, Callable[..., None]]:
        """Its test functions by name."""
        members = inspect.getmembers(self.scenarios, inspect.isfunction)
        return {name: function for name, function in members if name.startswith("test_")}

    def run_in(self, row: Row) -> set[str]:
        """The test functions that a row is about."""
        if row.only:
            return set(row.only)
        return {
            name
            for name, function in self.functions.items()
            if _runs(function, row.configuration, MODELS[row.model].memory)
        }


def _runs(function: Callable[..., None], configuration: str, memory: Memory) -> bool:
    """Whether a test function is repeated for a configuration, with models of a memory kind."""
    of_module = getattr(inspect.getmodule(function), "pytestmark", [])
    marks = [mark.mark for mark in of_module] + getattr(function, "pytestmark", [])
    named: dict[str, pytest.Mark] = {mark.name: mark for mark in marks}
    if "memory" in named and memory not in named["memory"].args:
        return False
    alone = configuration.startswith("np1-")
    if "slow" in named or ("several_slots" in named and alone) or ("alone" in named and not alone):
        return False
    routes = named["routes"].args if "routes" in named else ROUTES
    return Route(configuration.rpartition("-")[2]) in routes
