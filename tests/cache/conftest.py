"""What the scenarios of the suite are repeated over."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

import pytest

from harness.models.synthetic.store import DEFAULT, MODELS, chosen
from harness.plugin import models
from harness.prompts import Route

if TYPE_CHECKING:
    from harness.models.spec import Model
    from harness.plugin import MakeScenario
    from harness.scenario import Scenario
    from harness.server.config import ConfigFields

CACHE_RAM = 256
"""MiB of host-RAM prompt cache: room for every state of a scenario."""


SIMILAR = 0.1
"""A slot is used for a prompt that shares more than this of its own length with it.

llama-server's own default; a conversation finds its slot by it.
"""


@dataclass(frozen=True, slots=True)
class Topology:
    """How many slots a server has, and whether they share one KV pool."""

    parallel: int
    kv_unified: bool

    @property
    def id(self) -> str:
        return f"np{self.parallel}-{'kvu' if self.kv_unified else 'nokvu'}"


TOPOLOGIES = tuple(Topology(parallel, unified) for parallel in (1, 4) for unified in (True, False))

ROUTES = (Route.COMPLETION, Route.CHAT)


def is_repeated(item: object) -> bool:
    """Return whether a scenario is repeated for the model, the slots and the route of a test.

    The first generated model, and a real one, have all of them. What another one reuses does not
    depend on the route; one that remembers like an earlier one has nothing but its own states to
    show; where K and V are of other types, the first of a kind shows it.
    """
    if not isinstance(item, pytest.Item):
        return True
    found = models(item.config)
    if not found or "llama_scenario" not in getattr(item, "fixturenames", ()):
        return True
    callspec = getattr(item, "callspec", None)  # none where nothing is repeated
    given: Mapping[str, Any] = callspec.params if callspec else {}
    model: Model = given.get("llama_model", found[0])
    only = item.get_closest_marker("memory")
    if only and model.memory not in only.args:
        return False
    first, *others = chosen(DEFAULT)
    if model.oracle is None or model.name == first:
        return True
    if item.get_closest_marker("one_a_memory") and model.name not in others:
        return False
    topology, route = given.get("topology"), given.get("route")
    if topology is None or route != _routes(item)[0]:
        return False
    if item.get_closest_marker("one_a_kind"):
        return chosen(MODELS[model.name].kind) == (model.name,)
    # One slot has a pool of its own either way: what differs, if anything, the first model shows.
    if topology.parallel == 1:
        return bool(topology == _topologies(item.config)[0])
    return model.name in others


class Start(Protocol):
    """Starts a scenario in a test's configuration: see the fixture `start`."""

    def __call__(
        self, adapters: Mapping[str, float] | None = None, **required: Unpack[ConfigFields]
    ) -> Scenario: ...


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The generated models, `topology` within `--llama-kv-unified`, and the routes."""
    marked = metafunc.definition.get_closest_marker
    found = models(metafunc.config)
    if "llama_model" in metafunc.fixturenames and found and found[0].oracle is not None:
        ids = [model.name for model in found]
        metafunc.parametrize("llama_model", found, ids=ids, indirect=True, scope="session")
    if "topology" in metafunc.fixturenames:
        topologies = _topologies(metafunc.config)
        if marked("several_slots"):
            topologies = [t for t in topologies if t.parallel > 1]
        if marked("alone"):
            topologies = topologies[:1]
        metafunc.parametrize("topology", topologies, ids=lambda topology: topology.id)
    if "route" in metafunc.fixturenames:
        metafunc.parametrize("route", _routes(metafunc.definition), ids=str)


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Make no test of a configuration that a scenario is not repeated for."""
    made = yield
    return [item for item in made if is_repeated(item)] if isinstance(made, list) else made


def _topologies(config: pytest.Config) -> list[Topology]:
    """Those within `--llama-kv-unified`, the simplest first."""
    wanted = config.getoption("--llama-kv-unified")
    return [t for t in TOPOLOGIES if wanted in ("both", "on" if t.kv_unified else "off")]


def _routes(item: pytest.Item) -> Sequence[Route]:
    only = item.get_closest_marker("routes")
    return only.args if only else ROUTES


@pytest.fixture
def start(llama_scenario: MakeScenario, topology: Topology, route: Route) -> Start:
    """Scenarios in this test's configuration, with the prompt cache on.

    Takes the adapters to load, with their server-wide scales, and what the scenario requires of
    the server beside.
    """

    def start(
        adapters: Mapping[str, float] | None = None, **required: Unpack[ConfigFields]
    ) -> Scenario:
        fields: ConfigFields = {
            "cache_ram": CACHE_RAM,
            "parallel": topology.parallel,
            "kv_unified": topology.kv_unified,
            "slot_prompt_similarity": SIMILAR,
            **required,
        }
        return llama_scenario(route, adapters=adapters or {}, **fields)

    return start


@pytest.fixture
def start_long(llama_scenario: MakeScenario) -> Start:
    """Scenarios of 30,000 tokens, in one slot.

    Answers are judged by their cell alone: a cold run would take as long as the scenario.
    """

    def start_long(
        adapters: Mapping[str, float] | None = None, **required: Unpack[ConfigFields]
    ) -> Scenario:
        fields: ConfigFields = {
            "cache_ram": CACHE_RAM,
            "parallel": 1,
            "ctx_size": 32_768,
            "flash_attn": "on",
            "threads_batch": 2,
            **required,
        }
        return llama_scenario(
            Route.COMPLETION, adapters=adapters or {}, compare_cold=False, **fields
        )

    return start_long


@pytest.fixture
def slot_directory(tmp_path: Path) -> Path:
    """A place for slot files, beside the server's log."""
    directory = tmp_path / "slots"
    directory.mkdir()
    return directory
