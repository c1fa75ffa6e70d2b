"""The end of a run on the terminal: examples of what is new, and the first screen."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

import pytest

from harness.ledger import Verdict, VerdictRow
from harness.report.screen import is_new, sameness, screen
from harness.report.terminal import summary

_FEW = 3
"""So many failures are shown in full, whatever they are like."""
_BY_DEFAULT = "fE"
"""What pytest's `-r` is unless somebody says."""


class Summary:
    """What a run found out, and how pytest's own sections are kept from hiding it.

    A failure is shown in full once for all that are like it, unless `--tb` says how. Failures are
    not listed once more by pytest's short summary, unless `-r` asks for it.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._found: list[tuple[pytest.TestReport, VerdictRow]] = []
        self.titles: Mapping[str, str] = {}
        """Of known bugs, by issue."""
        self._failed: list[pytest.TestReport] = []
        """All failures of the run, while pytest has a part of them to show."""

    @property
    def rows(self) -> list[VerdictRow]:
        """The verdicts so far."""
        return [row for _, row in self._found]

    def add(self, report: pytest.TestReport, row: VerdictRow) -> None:
        """Take a verdict, and pytest's report of it."""
        self._found.append((report, row))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> Generator[None, None, None]:
        """Leave pytest one example of each failure to show; afterwards it counts all of them."""
        self._failed = terminalreporter.stats.get("failed", [])
        if self._config.option.tbstyle == "auto":
            self._set_failed(terminalreporter, self._examples(self._failed))
        try:
            return (yield)
        finally:
            self._set_failed(terminalreporter, self._failed)

    def write(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the first screen, and the whole table before it with `-v`.

        pytest's short summary, which comes next, has what is not on the screen, or what `-r` says.
        """
        ours = {id(report) for report, _ in self._found}
        asked = self._config.option.reportchars != _BY_DEFAULT
        others = [report for report in self._failed if asked or id(report) not in ours]
        self._set_failed(terminalreporter, others)
        if not self._found or self._config.getoption("--no-summary"):
            return
        terminalreporter.section("llama-server KV-cache reuse")
        width = self._config.get_terminal_writer().fullwidth
        if self._config.option.verbose > 0:
            for text in summary(self.rows, width):
                terminalreporter.write_line(text)
            terminalreporter.write_line("")
        for line in screen(self.rows, width=width, titles=self.titles, more=self._more()):
            markup = {line.colour.value: True} if line.colour else {}
            terminalreporter.write_line(line.text, **markup)

    def _examples(self, failed: Iterable[pytest.TestReport]) -> list[pytest.TestReport]:
        """Return the reports that pytest is to show in full."""
        failed = list(failed)
        rows = {id(report): row for report, row in self._found}
        if len(failed) <= _FEW:
            return failed
        seen: set[object] = set()
        examples = []
        for report in failed:
            row = rows.get(id(report))
            if row is not None:
                key = sameness(row)
                worth = is_new(row) or row.verdict is not Verdict.FAILED
                if not worth or key in seen:
                    continue
                seen.add(key)
            examples.append(report)
        return examples

    def _set_failed(
        self, reporter: pytest.TerminalReporter, reports: list[pytest.TestReport]
    ) -> None:
        if reports:
            reporter.stats["failed"] = reports
        else:
            reporter.stats.pop("failed", None)

    def _more(self) -> str:
        if path := self._config.getoption("--llama-report"):
            return f"more: llama-harness ledger {path} --table; pytest -v, --tb=short"
        return (
            "more: pytest -v shows every row, --tb=short every failure; --llama-report=FILE "
            "keeps everything, for llama-harness ledger FILE --table"
        )
