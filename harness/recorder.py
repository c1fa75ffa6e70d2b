"""Turns what pytest saw of scenarios into verdicts, the ledger, the summary and the exit code."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

# pytest's own form of a failure has no public name; workers can hand over nothing but this.
from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback

from harness.builds.build import Build
from harness.errors import HarnessError, NotTestable, OtherServerNeeded, Unsupported
from harness.expect import Claim
from harness.judge import NOT_JUDGED
from harness.known_bugs import Case, KnownBug, alike, conclude, find, load
from harness.ledger import Ledger, Verdict, VerdictRow
from harness.models.spec import Model
from harness.options import in_class, rerun
from harness.report.failure import failure_text
from harness.report.wording import link, shown
from harness.scenario import Scenario
from harness.server.device import AUTO
from harness.session import GENERATED, Session
from harness.stage import ScenarioFailed
from harness.summary import Summary

_ROW = "llama_cache_harness_row"
"""Attribute of a test report, a JSON text: workers can hand over nothing but plain values."""


_OURS = (HarnessError, ScenarioFailed)
"""What a scenario raises: told in our own words, without a traceback."""


@dataclass(slots=True)
class ScenarioTest:
    """What the recorder needs to know of a running test that uses a scenario."""

    build: Build
    model: Model
    scenario: Scenario | None = None
    started: float = field(default_factory=time.monotonic)


SCENARIO_TEST = pytest.StashKey[ScenarioTest]()


class Recorder:
    """pytest hooks: on workers and in a plain run judges, on the controller collects."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._summary = Summary(config)
        config.pluginmanager.register(self._summary, "llama-cache-summary")
        self._lost: list[str] = []
        """Failed tests of which there is no verdict (a worker was killed, say), and why."""
        self._ledger: Ledger | None = None
        self._ledger_error: str | None = None
        self._bugs: tuple[KnownBug, ...] | None = None

    def prepare(self) -> None:
        """Reads what is needed later; raises `UsageProblem` when it makes no sense."""
        self._bugs = load()

    def open_output(self, session: Session) -> None:
        """Starts the ledger and the directory to keep logs in, where they are asked for.

        Raises `UsageError` when that cannot be done.
        """
        try:
            if keep := self._config.getoption("--llama-keep"):
                option, path = "--llama-keep", Path(keep).expanduser()
                path.mkdir(parents=True, exist_ok=True)
            if report := self._config.getoption("--llama-report"):
                option, path = "--llama-report", Path(report).expanduser()
                command = ["pytest", *map(str, self._config.invocation_params.args)]
                self._ledger = Ledger(path, session.facts(command))
        except OSError as error:
            raise pytest.UsageError(
                f"{option}={path} cannot be written: {error.strerror}"
            ) from None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """The verdict on a scenario, once its test function has run."""
        test = item.stash.get(SCENARIO_TEST, None)
        excinfo = call.excinfo
        ours = test is not None and excinfo is not None and isinstance(excinfo.value, _OURS)
        ours = ours and item.get_closest_marker("xfail") is None  # which pytest judges itself
        if ours:
            # pytest would read and parse every source file of a traceback that is not shown.
            call.excinfo = None
        try:
            report = yield
        finally:
            call.excinfo = excinfo
        if ours and excinfo is not None:
            report.outcome = "failed"
            report.longrepr = _plain(item, str(excinfo.value))
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
        if is_worker(self._config):
            return
        if data is None:
            if report.failed and report.when != "teardown":
                why = report.longreprtext.strip().splitlines() or [""]
                self._lost.append(f"{report.nodeid}: {why[-1]}")
            return
        row = VerdictRow.from_json(json.loads(data))
        self._summary.add(report, row)
        if self._ledger is not None and self._ledger_error is None:
            try:
                self._ledger.add(row)
            except OSError as error:
                self._ledger_error = f"{self._ledger.path} is incomplete: {error.strerror}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the first screen of the result."""
        self._summary.titles = {bug.issue: bug.title for bug in self._bugs or ()}
        self._summary.write(terminalreporter)
        if self._ledger_error:
            terminalreporter.write_line(f"ERROR: --llama-report: {self._ledger_error}", red=True)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Exit code 5 when no scenario reached a verdict; 1 for a broken ledger."""
        ended = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if ended and self._nothing_found(session.testsfailed):
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
        if self._ledger is not None:
            self._end_ledger(self._ledger, int(session.exitstatus))
        if ended and self._ledger_error:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _end_ledger(self, ledger: Ledger, exit_code: int) -> None:
        try:
            if self._ledger_error is None:
                ledger.end(exit_code, lost=self._lost)
        except OSError as error:
            self._ledger_error = f"{ledger.path} is incomplete: {error.strerror}"
        finally:
            ledger.close()

    def _nothing_found(self, failed_tests: int) -> bool:
        """Whether scenarios ran and nothing was found out, and nothing but they failed.

        An error after a step had failed (no cold run for the next one, say) has found something.
        """
        errors = sum(row.verdict is Verdict.ERROR for row in self._summary.rows)
        found = any(row.verdict.reached or row.signature for row in self._summary.rows)
        return bool(self._summary.rows) and not found and failed_tests == errors

    def _judge(
        self,
        item: pytest.Item,
        call: pytest.CallInfo[None],
        report: pytest.TestReport,
        test: ScenarioTest,
    ) -> VerdictRow:
        """The verdict; makes `report` say the same."""
        error = call.excinfo.value if call.excinfo else None
        case = _case(item, test)
        scenario = test.scenario
        signature = scenario.signature() if scenario else ()
        if scenario is not None:
            scenario.explain()
        known, reason = None, _not_judged(scenario)
        if isinstance(error, NotTestable):
            unsupported = isinstance(error, Unsupported)
            verdict = Verdict.UNSUPPORTED if unsupported else Verdict.NOT_TESTED
            reason = error.message
            self._express_skip(f"{verdict}: {reason}", item, report)
        elif report.skipped:
            verdict, reason = Verdict.NOT_TESTED, str(error)
        else:
            known, trouble = self._known(case, test.build)
            if error is not None and not isinstance(error, ScenarioFailed):
                trouble = error
            elif trouble is None and not signature and not (scenario and scenario.judged):
                trouble = HarnessError("this test judged nothing", hint="no step claims anything")
            if trouble is None:
                verdict = conclude(signature, known)
                if verdict is Verdict.KNOWN_BUG_GONE and self._own_words():
                    # It is known for the harness's own arguments: with others it need not show.
                    verdict, reason = Verdict.HOLDS, _unseen(known)
                self._express(verdict, known, item, report, test)
            else:
                verdict = Verdict.ERROR
                name = "" if isinstance(trouble, HarnessError) else f"{type(trouble).__name__}: "
                reason = f"{name}{getattr(trouble, 'message', trouble)}".splitlines()[0]
                self._express_trouble(trouble, item, report, test)
        about = self._shown(verdict, known, case, signature)
        return VerdictRow(
            scenario=case.scenario,
            configuration=case.configuration,
            model=case.model,
            build=test.build.id,
            verdict=verdict,
            signature=signature,
            issue=about.issue if about else None,
            bug=about.what if about else None,
            reason=reason,
            argv=scenario.command if scenario else (),
            seconds=round(time.monotonic() - test.started, 3),
            requests=tuple(step.row for step in scenario.steps) if scenario else (),
            start_as=error.command if isinstance(error, OtherServerNeeded) else (),
        )

    def _own_words(self) -> bool:
        """Whether servers run with arguments of a person's."""
        return bool(self._config.getoption("--llama-arg") or self._config.getoption("--llama-url"))

    def _shown(
        self,
        verdict: Verdict,
        known: KnownBug | None,
        case: Case,
        signature: tuple[str, ...],
    ) -> KnownBug | None:
        """The known bug a verdict is about: the accepted one, or one that looks just the same."""
        if verdict in (Verdict.KNOWN_BUG, Verdict.KNOWN_BUG_GONE):
            return known
        if verdict is not Verdict.FAILED or self._config.getoption("--llama-model") != GENERATED:
            return None
        return alike(self._bugs or (), case, signature)

    def _express_skip(self, reason: str, item: pytest.Item, report: pytest.TestReport) -> None:
        """Gives pytest's report the form of a skip."""
        path, line, _ = item.location
        report.outcome = "skipped"
        report.longrepr = (path, (line or 0) + 1, f"Skipped: {reason}")

    def _express_trouble(
        self,
        trouble: BaseException,
        item: pytest.Item,
        report: pytest.TestReport,
        test: ScenarioTest,
    ) -> None:
        """Gives pytest's report an error that is no verdict; only a bug gets a traceback."""
        report.outcome = "failed"
        closing = self._closing(item, test)
        if isinstance(trouble, HarnessError):
            report.longrepr = _plain(item, "\n".join([str(trouble), *closing]))
        else:
            report.sections.append(("llama-server", "\n".join(closing)))

    def _express(
        self,
        verdict: Verdict,
        known: KnownBug | None,
        item: pytest.Item,
        report: pytest.TestReport,
        test: ScenarioTest,
    ) -> None:
        """Gives pytest's report the outcome of the verdict."""
        if verdict is Verdict.KNOWN_BUG and known is not None:
            report.outcome = "skipped"
            report.wasxfail = f"known bug {known.issue}: {shown(known.signature)}"
            report.longrepr = report.wasxfail
        elif verdict is Verdict.KNOWN_BUG_GONE and known is not None:
            report.outcome = "failed"
            report.longrepr = _plain(
                item,
                f"XPASS(strict): known bug {known.issue} does not show on this build: fixed "
                f"upstream? Expected {shown(known.signature)}",
            )
        elif verdict is Verdict.FAILED and test.scenario is not None:
            report.outcome = "failed"
            signature = test.scenario.signature()
            title = f"{shown(signature)} ({item.name} on {test.build.title})"
            same = self._shown(verdict, known, _case(item, test), signature)
            if known is not None:
                title += f"\nthe known bug {known.issue} shows as {shown(known.signature)}"
            elif same is not None:
                title += f"\nshows just like {same.issue}: {same.what} {link(same.issue)}".rstrip()
            closing = self._closing(item, test)
            report.longrepr = _plain(
                item, failure_text(test.scenario, title=title, closing=closing)
            )

    def _known(self, case: Case, build: Build) -> tuple[KnownBug | None, BaseException | None]:
        """The known bug that is accepted for this scenario here, and what is wrong with it."""
        mode = self._config.getoption("--known-bugs")
        if self._bugs is None:  # on a worker
            self.prepare()
        on_gpu = self._config.getoption("--llama-device") not in (AUTO, "cpu")
        if mode == "fail" or (mode == "auto" and (on_gpu or not build.origin.provided)):
            return None, None
        if self._config.getoption("--llama-model") != GENERATED:
            return None, None  # signatures are those of the generated model
        try:
            return find(self._bugs or (), case), None
        except HarnessError as error:
            return None, error

    def _closing(self, item: pytest.Item, test: ScenarioTest) -> list[str]:
        """The last lines of a failure: where its logs are, and how to run it again."""
        again = f"run again: {rerun(self._config, item, test.build, test.model)}"
        if test.scenario is None:
            return [again]
        if test.scenario.bench.attached is not None:  # its log is where its person wants it
            return ["start that server again first", again]
        return [f"logs: {self._keep(item, test.scenario)}", again]

    def _keep(self, item: pytest.Item, scenario: Scenario) -> str:
        """Copies logs and slot files to `--llama-keep`, if asked to; says where they are."""
        directory = self._config.getoption("--llama-keep")
        if not directory:
            return f"{scenario.directory} (--llama-keep=DIR keeps them)"
        target = Path(directory).expanduser() / re.sub(r"[^\w.\[\]-]+", "_", item.nodeid)
        try:
            shutil.copytree(scenario.directory, target, dirs_exist_ok=True)
        except (OSError, shutil.Error) as error:
            return f"{scenario.directory} (not kept in {target}: {error})"
        return str(target)


def recorder(config: pytest.Config) -> Recorder:
    """The recorder of this run."""
    found = config.pluginmanager.get_plugin("llama-cache-recorder")
    assert isinstance(found, Recorder)
    return found


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


def _case(item: pytest.Item, test: ScenarioTest) -> Case:
    """What a test is about, by its id; what names the build and the model is no configuration."""
    function, _, brackets = item.name.partition("[")
    named = (test.build.id, test.model.name)
    parts = [part for part in brackets.removesuffix("]").split("-") if part not in named]
    return Case(
        scenario=f"{item.path.name}::{in_class(item, function)}",
        configuration="-".join(parts),
        model=test.model.name,
        memory=test.model.memory,
        commit=test.build.capabilities.commit,
        number=test.build.number,
    )


def _plain(item: pytest.Item, text: str) -> ReprExceptionInfo:
    """A failure of this text without a traceback; its first line is what one-line summaries show.

    A mere string as a report's `longrepr` would stand whole in the short summary on CI.
    """
    _, line, _ = item.location
    # With --tb=line pytest writes the first line by itself.
    in_one_line = getattr(item.config.option, "tbstyle", "auto") == "line"  # or -p no:terminal
    entries = [] if in_one_line else [ReprEntryNative([text + "\n"])]
    return ReprExceptionInfo(
        reprtraceback=ReprTraceback(entries, extraline=None, style="native"),
        reprcrash=ReprFileLocation(str(item.path), (line or 0) + 1, text.partition("\n")[0]),
    )


def _unseen(known: KnownBug | None) -> str | None:
    return f"the known bug {known.issue} does not show with these arguments" if known else None


def _not_judged(scenario: Scenario | None) -> str | None:
    """What a verdict does not cover, where answers or reuse could not be judged."""
    rows = [step.row for step in scenario.steps] if scenario else []
    for row in rows:
        if (row.answer or "").startswith(NOT_JUDGED):
            return f"answers {row.answer}"
        if row.claim == Claim.PROMISED.value and row.possible and row.expected == (0, row.possible):
            return f"reuse {NOT_JUDGED}: nothing is promised of {row.possible} tokens here"
    return None


def _properties(row: VerdictRow) -> list[tuple[str, Any]]:
    """What JUnit XML says of a scenario."""
    properties = [
        ("verdict", row.verdict.value),
        ("build", row.build),
        ("cache_n/prompt_n", " ".join(row.reuses)),
        ("signature", shown(row.signature)),
    ]
    why = " | ".join(f"{r.step}: {r.reason}" for r in row.requests if r.failures)
    properties += [("why", why)] if why else []
    return properties + ([("issue", row.issue)] if row.issue else [])
