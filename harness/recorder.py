"""Turns what pytest saw of scenarios into verdicts, the ledger, the summary and the exit code."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from harness.builds.build import Build
from harness.errors import HarnessError
from harness.known_bugs import KnownBug, conclude, find, load
from harness.ledger import Ledger, Verdict, VerdictRow
from harness.report.failure import failure_text
from harness.report.terminal import summary
from harness.scenario import Scenario, ScenarioFailed
from harness.session import GENERATED, Session

_ROW = "llama_cache_harness_row"
"""Attribute of a test report, a JSON text: workers can hand over nothing but plain values."""

_ABOUT_KNOWN_BUGS = (Verdict.KNOWN_BUG, Verdict.KNOWN_BUG_GONE)


@dataclass(slots=True)
class TestRun:
    """What the recorder needs to know of a running test that uses a scenario."""

    __test__ = False  # not a test class

    build: Build
    scenario: Scenario | None = None
    skipped: tuple[Verdict, str] | None = None
    started: float = field(default_factory=time.monotonic)

    def skip(self, verdict: Verdict, reason: str) -> NoReturn:
        """Ends the test without a verdict on the build."""
        self.skipped = (verdict, reason)
        pytest.skip(f"{verdict}: {reason}")


TEST_RUN = pytest.StashKey[TestRun]()


class Recorder:
    """pytest hooks: on workers and in a plain run judges, on the controller collects."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._rows: list[VerdictRow] = []
        self._ledger: Ledger | None = None
        self._ledger_error: str | None = None
        self._bugs: tuple[KnownBug, ...] | None = None

    def prepare_output(self, session: Session | None) -> None:
        """Starts the ledger and the directory to keep logs in, where they are asked for.

        Raises `UsageError` when that cannot be done.
        """
        try:
            if keep := self._config.getoption("--llama-keep"):
                option, path = "--llama-keep", Path(keep)
                path.mkdir(parents=True, exist_ok=True)
            if report := self._config.getoption("--llama-report"):
                option, path = "--llama-report", Path(report)
                command = ["pytest", *map(str, self._config.invocation_params.args)]
                self._ledger = Ledger(path, session.facts(command) if session else {})
        except OSError as error:
            raise pytest.UsageError(
                f"{option}={path} cannot be written: {error.strerror}"
            ) from None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """The verdict on a scenario, once its test function has run."""
        report = yield
        test = item.stash.get(TEST_RUN, None)
        if test is not None and (
            report.when == "call" or (report.when == "setup" and report.failed)
        ):
            row = self._judge(item, call, report, test)
            setattr(report, _ROW, json.dumps(row.to_json()))
            for name, value in _properties(row):
                item.user_properties.append((name, value))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collects verdicts, on the controller only."""
        data = getattr(report, _ROW, None)
        if data is None or is_worker(self._config):
            return
        row = VerdictRow.from_json(json.loads(data))
        self._rows.append(row)
        if self._ledger is not None and self._ledger_error is None:
            try:
                self._ledger.add(row)
            except OSError as error:
                self._ledger_error = f"{self._ledger.path} is incomplete: {error.strerror}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table of all scenarios."""
        if self._rows:
            terminalreporter.section("llama-server KV-cache reuse")
            for line in summary(self._rows):
                terminalreporter.write_line(line)
        if self._ledger_error:
            terminalreporter.write_line(f"ERROR: --llama-report: {self._ledger_error}", red=True)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Exit code 5 when scenarios ran and none reached a verdict; 1 for a broken ledger."""
        if self._ledger is not None:
            self._ledger.close()
        if session.exitstatus != pytest.ExitCode.OK:
            return
        if self._ledger_error:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif self._rows and not any(row.verdict.reached for row in self._rows):
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

    def _judge(
        self,
        item: pytest.Item,
        call: pytest.CallInfo[None],
        report: pytest.TestReport,
        test: TestRun,
    ) -> VerdictRow:
        """The verdict; makes `report` say the same."""
        error = call.excinfo.value if call.excinfo else None
        name, configuration = _identity(item, test.build)
        signature = test.scenario.signature() if test.scenario else ()
        known = self._known(name, configuration, test.build)
        reason = None
        if test.skipped is not None:
            verdict, reason = test.skipped
        elif report.skipped:
            verdict, reason = Verdict.NOT_TESTED, str(error)
        elif error is None or isinstance(error, ScenarioFailed):
            verdict = conclude(signature, known)
            self._express(verdict, known, item, report, test)
        else:
            verdict = Verdict.ERROR
            reason = f"{type(error).__name__}: {getattr(error, 'message', error)}".splitlines()[0]
            if isinstance(error, HarnessError) and test.scenario is not None:
                report.longrepr = "\n".join([str(error), *self._closing(item, test)])
        return VerdictRow(
            scenario=name,
            configuration=configuration,
            build=test.build.id,
            verdict=verdict,
            signature=signature,
            issue=known.issue if known and verdict in _ABOUT_KNOWN_BUGS else None,
            reason=reason,
            argv=test.scenario.server.command if test.scenario and test.scenario.steps else (),
            seconds=round(time.monotonic() - test.started, 3),
            requests=tuple(step.row for step in test.scenario.steps) if test.scenario else (),
        )

    def _express(
        self,
        verdict: Verdict,
        known: KnownBug | None,
        item: pytest.Item,
        report: pytest.TestReport,
        test: TestRun,
    ) -> None:
        """Gives pytest's report the outcome of the verdict."""
        if verdict is Verdict.KNOWN_BUG and known is not None:
            report.outcome = "skipped"
            report.wasxfail = f"known bug {known.issue}: {', '.join(known.signature)}"
            report.longrepr = report.wasxfail
        elif verdict is Verdict.KNOWN_BUG_GONE and known is not None:
            report.outcome = "failed"
            report.longrepr = (
                f"XPASS(strict): known bug {known.issue} does not show on this build: fixed "
                f"upstream? Expected {', '.join(known.signature)}"
            )
        elif verdict is Verdict.FAILED and test.scenario is not None:
            title = f"{item.name} on {test.build.title}: {', '.join(test.scenario.signature())}"
            if known is not None:
                title += f"\nthe known bug {known.issue} shows as {', '.join(known.signature)}"
            report.longrepr = failure_text(
                test.scenario,
                title=title,
                closing=self._closing(item, test),
            )

    def _known(self, scenario: str, configuration: str, build: Build) -> KnownBug | None:
        """The known bug that is accepted for this scenario here, if any."""
        mode = self._config.getoption("--known-bugs")
        if mode == "fail" or (mode == "auto" and not build.origin.provided):
            return None
        if self._config.getoption("--llama-model") != GENERATED:
            return None  # signatures are those of the generated model
        if self._bugs is None:
            self._bugs = load()
        return find(self._bugs, scenario, configuration, build.capabilities.commit, build.number)

    def _closing(self, item: pytest.Item, test: TestRun) -> list[str]:
        """The last lines of a failure: where its logs are, and how to run it again."""
        assert test.scenario is not None
        logs = self._keep(item, test.scenario)
        return [f"logs: {logs}", f"run again: {self._rerun(item, test.build)}"]

    def _keep(self, item: pytest.Item, scenario: Scenario) -> str:
        """Copies logs and slot files to `--llama-keep`, if asked to; says where they are."""
        directory = self._config.getoption("--llama-keep")
        if not directory:
            return str(scenario.directory)
        target = Path(directory) / re.sub(r"[^\w.\[\]-]+", "_", item.nodeid)
        try:
            shutil.copytree(scenario.directory, target, dirs_exist_ok=True)
        except (OSError, shutil.Error) as error:
            return f"{scenario.directory} (not kept in {target}: {error})"
        return str(target)

    def _rerun(self, item: pytest.Item, build: Build) -> str:
        """A line that runs just this scenario again, on this build."""
        name, configuration = _identity(item, build)
        node_id = f"{item.nodeid.partition('::')[0]}::{name.partition('::')[2]}[{configuration}]"
        words = ["pytest", node_id, f"--llama-bin={build.origin.path}"]
        if (model := self._config.getoption("--llama-model")) != GENERATED:
            words.append(f"--llama-model={model}")
        for option in ("--llama-lora", "--llama-arg"):
            words += [f"{option}={value}" for value in self._config.getoption(option)]
        if launcher := self._config.getoption("--llama-launcher"):
            words.append(f"--llama-launcher={launcher}")
        return shlex.join(words)


def recorder(config: pytest.Config) -> Recorder:
    """The recorder of this run."""
    found = config.pluginmanager.get_plugin("llama-cache-recorder")
    assert isinstance(found, Recorder)
    return found


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


def _identity(item: pytest.Item, build: Build) -> tuple[str, str]:
    """`test_lora.py::test_x` and the configuration, without what names the build."""
    function, _, brackets = item.name.partition("[")
    parts = brackets.removesuffix("]").split("-")
    configuration = "-".join(part for part in parts if part != build.id)
    return f"{item.path.name}::{function}", configuration


def _properties(row: VerdictRow) -> list[tuple[str, Any]]:
    """What JUnit XML says of a scenario."""
    properties = [
        ("verdict", row.verdict.value),
        ("build", row.build),
        ("cache_n/prompt_n", " ".join(request.reuse for request in row.requests)),
        ("signature", ", ".join(row.signature)),
    ]
    return properties + ([("issue", row.issue)] if row.issue else [])
