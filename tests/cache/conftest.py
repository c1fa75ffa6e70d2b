"""What the scenarios of the suite are repeated over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from harness.prompts import Route

if TYPE_CHECKING:
    from harness.plugin import MakeScenario
    from harness.scenario import Scenario

CACHE_RAM = 256
"""MiB of host-RAM prompt cache: room for every state of a scenario."""


@dataclass(frozen=True, slots=True)
class Topology:
    """How many slots a server has, and whether they share one KV pool."""

    parallel: int
    kv_unified: bool

    @property
    def id(self) -> str:
        return f"np{self.parallel}-{'kvu' if self.kv_unified else 'nokvu'}"


TOPOLOGIES = tuple(Topology(parallel, unified) for parallel in (1, 4) for unified in (True, False))

Start = Callable[[Mapping[str, float]], "Scenario"]
"""Starts a scenario with these adapters loaded, at these server-wide scales."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`topology` within `--llama-kv-unified`, and both routes."""
    if "topology" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--llama-kv-unified")
        topologies = [t for t in TOPOLOGIES if wanted in ("both", "on" if t.kv_unified else "off")]
        metafunc.parametrize("topology", topologies, ids=lambda topology: topology.id)
    if "route" in metafunc.fixturenames:
        metafunc.parametrize("route", list(Route), ids=str)


@pytest.fixture
def start(llama_scenario: MakeScenario, topology: Topology, route: Route) -> Start:
    """Scenarios in this test's configuration, with the prompt cache on."""
    return lambda adapters: llama_scenario(
        route,
        adapters=adapters,
        cache_ram=CACHE_RAM,
        parallel=topology.parallel,
        kv_unified=topology.kv_unified,
    )
