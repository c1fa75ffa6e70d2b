"""The pytest plugin: fixtures and hooks, nothing else.

Everything is found and probed once, on the controller, before collection; workers of pytest-xdist
get the result handed over. A project that merely has this plugin installed is left alone: nothing
happens unless its configuration says `llama_harness = true`, or one of our options is given.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Unpack

import pytest

from harness import suite
from harness.bench import Bench
from harness.builds.build import Build
from harness.errors import (
    EXIT_NOT_OBTAINED,
    HarnessError,
    NotObtained,
    Selectable,
    UsageProblem,
)
from harness.models.spec import Model
from harness.options import add_options, check_options, options_given
from harness.prompts import Route
from harness.recorder import (
    SCENARIO_TEST,
    Recorder,
    ScenarioTest,
    is_worker,
    recorder,
)
from harness.report.table import wrapped
from harness.scenario import Scenario
from harness.server.config import ConfigFields
from harness.server.guard import Guard
from harness.session import Session, prepare
from harness.start_failures import StartFailures

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class MakeScenario(Protocol):
    """Makes a scenario: see the fixture `llama_scenario`."""

    def __call__(  # noqa: D102  # the class says it
        self,
        route: Route,
        *,
        adapters: Mapping[str, float],
        compare_cold: bool = True,
        **required: Unpack[ConfigFields],
    ) -> Scenario: ...


_STAGES = 4
"""A test waits for its server to start, for its requests, and for the same of the reference."""
_GRACE_SECONDS = 60.0
_SLOW_FACTOR = 5

_SESSION = pytest.StashKey[Session | None]()
_PROBLEM = pytest.StashKey[HarnessError | None]()
_NO_BUILD = pytest.StashKey[bool]()
"""Whether the run ends because a build could not be had, or does not run here."""
_STARTS = pytest.StashKey[StartFailures | None]()
_SURVEY = pytest.StashKey[bool]()
"""Whether the run only says what can be tested on the server that was attached to."""
_NO_SERVER = "no-llama-server"
_WORKER_INPUT = "llama_cache_harness"


def pytest_addoption(parser: pytest.Parser) -> None:
    """One group of options, all prefixed."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Markers, and places for what a run finds out."""
    config.addinivalue_line("markers", "slow: takes many seconds even with a tiny model")
    config.stash[_SESSION] = None
    config.stash[_PROBLEM] = None
    config.stash[_NO_BUILD] = False
    config.stash[_STARTS] = None
    config.stash[_SURVEY] = False
    config.pluginmanager.register(Recorder(config), "llama-cache-recorder")


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, int, int]:
    """Give the exit code that commands have, where there is no build to test."""
    try:
        return (yield)
    except pytest.UsageError as problem:
        if not config.stash[_NO_BUILD]:
            raise
        print(f"ERROR: {problem}", file=sys.stderr)
        return EXIT_NOT_OBTAINED


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Finds and probes everything, before collection and before workers start."""
    config = session.config
    if is_worker(config):
        handed, directory = _worker_input(config)["session"], _worker_input(config)["starts"]
        config.stash[_SESSION] = Session.from_json(handed) if handed else None
        config.stash[_STARTS] = StartFailures(Path(directory)) if directory else None
        return
    if not _asked_for(config):
        config.stash[_PROBLEM] = UsageProblem(
            "a test needs a llama-server, and this project does not say that it tests one",
            hint="pass --llama-bin=PATH, or set llama_harness = true in its pytest configuration",
        )
        return
    check_options(config)
    try:
        recorder(config).prepare()
        with _uncaptured(config):  # a download shows its progress
            found = prepare(
                binaries=config.getoption("--llama-bin"),
                refs=config.getoption("--llama-ref"),
                flavour=config.getoption("--llama-flavour"),
                environ=dict(os.environ),
                model=config.getoption("--llama-model"),
                memory=config.getoption("--llama-memory"),
                loras=config.getoption("--llama-lora"),
                args=config.getoption("--llama-arg"),
                launcher=config.getoption("--llama-launcher"),
                device=config.getoption("--llama-device"),
                url=next(iter(config.getoption("--llama-url")), None),
                seconds=config.getoption("--llama-timeout"),
            )
    except HarnessError as problem:
        if options_given(config):
            _leave(config, problem)
        if any("::" in word and "[" in word for word in config.args):
            _leave(config, problem)  # pytest would not find a test of a model that is not known
        config.stash[_PROBLEM] = problem  # only matters to tests that need a server
        return
    config.stash[_SESSION] = found
    recorder(config).open_output(found)
    directory = tempfile.TemporaryDirectory(prefix="llama-harness.")
    config.add_cleanup(directory.cleanup)
    config.stash[_STARTS] = StartFailures(Path(directory.name))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Hands a worker of pytest-xdist what the controller found."""
    found, starts = node.config.stash[_SESSION], node.config.stash[_STARTS]
    node.workerinput[_WORKER_INPUT] = {
        "session": found.to_json() if found else None,
        "starts": str(starts.directory) if starts else None,
        "controller": os.getpid(),
    }


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say which server won, and what it is."""
    found = config.stash[_SESSION]
    width = config.get_terminal_writer().fullwidth
    return [line for text in (found.header() if found else []) for line in wrapped(text, width)]


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Where a person who means to run the suite is somewhere else."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    others = items or reporter.stats.get("deselected") or reporter.stats.get("error")
    if others or config.stash[_SESSION] is None or config.rootpath == suite.root():
        return []
    return ["there are no scenarios here: run pytest $(llama-harness suite) with the same options"]


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeats what needs a server for each build, if there are several."""
    if "llama_build" not in metafunc.fixturenames:
        return
    found = metafunc.config.stash[_SESSION]
    if found is None:
        metafunc.parametrize("llama_build", [None], ids=[_NO_SERVER], indirect=True)
    elif len(found.builds) > 1:
        ids = [build.id for build in found.builds]
        metafunc.parametrize("llama_build", found.builds, ids=ids, indirect=True)


def models(config: pytest.Config) -> tuple[Model, ...]:
    """The models of this run; none where there is no server to test."""
    found = config.stash[_SESSION]
    return found.models if found else ()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Time limits for scenarios; an error when tests need a server and there is none."""
    seconds = _STAGES * config.getoption("--llama-timeout") + _GRACE_SECONDS
    ours = [item for item in items if "llama_scenario" in getattr(item, "fixturenames", ())]
    limited = any(map(config.pluginmanager.hasplugin, ("timeout", "pytest_timeout")))
    for item in ours:
        if limited and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(seconds * _factor(item)))
    config.stash[_SURVEY] = len(ours) > 1 and _is_attached(config) and not _selects(config)
    # First, so that the other workers of pytest-xdist are busy meanwhile.
    slow = {item for item in ours if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item not in slow)
    if not is_worker(config) and not config.option.collectonly:
        _refuse_without_server(config, (item.nodeid for item in items))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: WorkerController, ids: list[str]) -> None:
    """The same error, where workers collect."""
    _refuse_without_server(node.config, ids)


@pytest.fixture(scope="session")
def llama_build(request: pytest.FixtureRequest) -> Build:
    """The build under test."""
    found = request.config.stash[_SESSION]
    assert found is not None
    build: Build = getattr(request, "param", found.builds[0])
    return build


@pytest.fixture(scope="session")
def llama_model(request: pytest.FixtureRequest) -> Model:
    """The model to test with: the first one, where a test is not repeated over all of them."""
    found = request.config.stash[_SESSION]
    assert found is not None
    model: Model = getattr(request, "param", found.models[0])
    return model


@pytest.fixture(scope="session")
def llama_guard(request: pytest.FixtureRequest) -> Iterator[Guard]:
    """Kills servers that outlive this process, or the controller of pytest-xdist."""
    worker = is_worker(request.config)
    controller = [_worker_input(request.config)["controller"]] if worker else []
    with Guard(also_watch=controller) as guard:
        yield guard


@pytest.fixture(scope="session")
def llama_bench(
    request: pytest.FixtureRequest,
    llama_build: Build,
    llama_model: Model,
    llama_guard: Guard,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Bench]:
    """What all scenarios on one build with one model share."""
    found = request.config.stash[_SESSION]
    assert found is not None
    bench = Bench(
        program=llama_build.program,
        model=llama_model,
        guard=llama_guard,
        directory=tmp_path_factory.mktemp("bench"),
        seconds=request.config.getoption("--llama-timeout"),
        device=found.device_flag(llama_build),
        extra_args=found.extra_args,
        attached=found.attached,
        starts=None if found.attached else request.config.stash[_STARTS],
    )
    yield bench
    bench.close()


@pytest.fixture
def llama_scenario(
    request: pytest.FixtureRequest, llama_build: Build, llama_bench: Bench, tmp_path: Path
) -> MakeScenario:
    """Makes the scenario of this test.

    `llama_scenario(route, adapters={"A": 0.0}, parallel=1, ...)`: the route, the adapters to load
    with their server-wide scales, and the fields of `ServerConfig` the scenario requires. Raises
    `NotTestable` where the build or the user's own arguments do not allow it.
    """
    test = ScenarioTest(llama_build, llama_bench.model)
    request.node.stash[SCENARIO_TEST] = test

    def make(
        route: Route,
        *,
        adapters: Mapping[str, float],
        compare_cold: bool = True,
        **required: Unpack[ConfigFields],
    ) -> Scenario:
        server_config = llama_bench.config(adapters, **required)
        if request.config.stash[_SURVEY]:
            raise Selectable
        test.scenario = Scenario(
            bench=llama_bench,
            config=server_config,
            adapters=adapters,
            route=route,
            directory=tmp_path,
            seconds=request.config.getoption("--llama-timeout") * _factor(request.node),
            compare_cold=compare_cold,
        )
        return test.scenario

    return make


def _asked_for(config: pytest.Config) -> bool:
    """Whether this run is about a server, rather than a bystander's."""
    return bool(config.getini("llama_harness")) or options_given(config)


def _is_attached(config: pytest.Config) -> bool:
    found = config.stash[_SESSION]
    return found is not None and found.attached is not None


def _selects(config: pytest.Config) -> bool:
    """Return whether a person has selected scenarios, rather than all there are."""
    return bool(config.option.keyword) or any("::" in word for word in config.args)


def _uncaptured(config: pytest.Config) -> AbstractContextManager[None]:
    """What is printed meanwhile is seen at once."""
    capture = config.pluginmanager.getplugin("capturemanager")
    return capture.global_and_fixture_disabled() if capture else nullcontext()


def _factor(item: pytest.Item) -> int:
    """How many times the usual time a test has."""
    return _SLOW_FACTOR if item.get_closest_marker("slow") else 1


def _refuse_without_server(config: pytest.Config, ids: Iterable[str]) -> None:
    """End the run where its tests need a server and there is none.

    Models are not known without one, so that a selection by a model's name leaves nothing.
    """
    problem, ids = config.stash[_PROBLEM], list(ids)
    nothing_left = not ids and _selects(config) and config.getini("llama_harness")
    if problem is not None and (nothing_left or any(_NO_SERVER in node_id for node_id in ids)):
        _leave(config, problem)


def _leave(config: pytest.Config, problem: HarnessError) -> NoReturn:
    """End the run with one line, and the exit code of the problem."""
    config.stash[_NO_BUILD] = isinstance(problem, NotObtained)
    raise pytest.UsageError(str(problem)) from None


def _worker_input(config: pytest.Config) -> dict[str, Any]:
    """What the controller handed to this worker."""
    handed: dict[str, Any] = config.workerinput[_WORKER_INPUT]  # type: ignore[attr-defined]  # set by pytest-xdist
    return handed
