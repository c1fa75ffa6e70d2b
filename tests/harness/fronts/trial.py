"""Runs scenarios on a front, the way anybody runs them on a llama-server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from harness.ledger import Verdict

ROOT = Path(__file__).parents[3]

PROBES = frozenset({"--version", "--help", "--list-devices"})
"""Arguments that make a llama-server tell what it is, and end."""

_SECONDS = 300.0

Outcome = tuple[Verdict, frozenset[str]]
"""What came of one scenario: the verdict and the failed `step: kind` pairs."""

Outcomes = Mapping[str, Outcome]
"""By test function and variant: `test_article-wide1`."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one run of pytest."""

    by_front: Mapping[Path, Outcomes]
    """In the order in which the fronts were given."""
    returncode: int
    output: str

    @property
    def outcomes(self) -> Outcomes:
        """The outcomes of the only front."""
        [outcomes] = self.by_front.values()
        return outcomes


def write_front(directory: Path, *, real: Path, fault: str) -> Path:
    """An executable front with this fault, in front of the `real` llama-server."""
    script = directory / f"front-{fault}"
    # Without site-packages it starts in half the time; it needs nothing from there.
    text = f"""\
        #!{sys.executable} -IS
        import os
        import sys

        real = {str(real)!r}
        # A probe is the real server's to answer, and needs nothing that takes time to import.
        if {PROBES!r}.intersection(sys.argv):
            os.execv(real, [real, *sys.argv[1:]])
        sys.path.insert(0, {str(ROOT)!r})
        from tests.harness.fronts.front import main

        main(real=real, fault={fault!r})
        """
    script.write_text(dedent(text), encoding="utf-8")
    script.chmod(0o755)
    return script


def run(
    fronts: Sequence[Path],
    family: str,
    configuration: str,
    *,
    model: str = "llama",
    only: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Trial:
    """Run the scenarios of a file in one configuration on each front, in one pytest process.

    All of them, or `only` some test functions. `model` is a generated one.

    `family` is the file's name in `tests/cache`, without its suffix. The configuration is
    `np1-kvu-completion`, or empty for a scenario that has none.
    """
    ledger = fronts[0].with_name("ledger.jsonl")
    file = f"tests/cache/{family}.py"
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *([f"{file}::{function}" for function in only] or [file, "-m", "not slow"]),
        *("-k", configuration),
        *(f"--basetemp={ledger.with_name('scenarios')}", f"--llama-report={ledger}"),
        *(f"--llama-bin={front}" for front in fronts),
        *(f"--llama-memory={model}", "--llama-device=cpu", *options),
    ]
    # The run that this is a part of must not tell it anything.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=_SECONDS * len(fronts),
    )
    output = done.stdout + done.stderr
    assert ledger.exists(), output
    first, *rows = map(json.loads, ledger.read_text(encoding="utf-8").splitlines())
    found: dict[Path, dict[str, Outcome]] = {front: {} for front in fronts}
    by_build = {build["id"]: found[Path(build["path"])] for build in first["builds"]}
    for row in rows:
        if row["row"] == "verdict":
            outcome = Verdict(row["verdict"]), frozenset(row["signature"])
            by_build[row["build"]][_name(row, configuration)] = outcome
    return Trial(found, done.returncode, output)


def collected(suite: Path) -> frozenset[str]:
    """The ids of all scenarios of the suite."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--co", str(suite)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return frozenset(line for line in done.stdout.splitlines() if "::" in line)


def _name(row: Mapping[str, str], configuration: str) -> str:
    """The test function with what its id has beside the configuration."""
    return row["scenario"].partition("::")[2] + row["configuration"].removeprefix(configuration)
