"""Packages from the index that the user's own pip is configured for."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.builds.base import NotHere
from harness.builds.command import Result, Runner
from harness.builds.steps import Steps
from harness.builds.store import Store

# What the package of upstream's sources needs before it says its name.
_TO_READ_SDISTS = ("setuptools", "setuptools-scm", "wheel")
# Another release of pip is no better at this, and asking takes time.
_QUIETLY = ("--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "20")
_VERSION = re.compile(r"pip (\d+)\.(\d+)")
_RAW_BAR_SINCE = (24, 1)
_AVAILABLE = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
_OTHERS = re.compile(r"\(from versions: (?!none\))")


@dataclass(frozen=True, slots=True)
class Pip:
    """The user's pip, or one in an environment of its own, where more than pip is needed."""

    store: Store
    runner: Runner

    @property
    def _home(self) -> Path:
        return self.store.root / "pip"

    def fetch(self, package: str, version: str, *, sdist: bool, into: Path, steps: Steps) -> Path:
        """Downloads one file of a package and checks it as pip does; its path.

        Raises `NotHere` where the index has no such version, or cannot be reached.
        """
        # A wheel can be fetched by any pip; to read an sdist takes what builds it.
        python = self.ready(steps) if sdist else self._any(steps)
        kind = ("--no-binary=:all:", "--no-build-isolation") if sdist else ("--only-binary=:all:",)
        wanted = f"{package}=={version}"
        with steps.step(f"fetching {package} {version}", log=self.runner.log):
            result = self.runner.run(
                python,
                *("-m", "pip", "download", *_QUIETLY, *self._told(python), "--no-deps"),
                *kind,
                *("--dest", into, wanted),
                watch=steps.watch,
            )
        files = list(into.iterdir())
        if result.returncode == 0 and len(files) == 1:
            return files[0]
        raise _refusal(result, f"{package} {version}")

    def versions(self, package: str, *, sdist: bool, steps: Steps) -> tuple[str, ...]:
        """List the versions of a package that the index has for this system.

        Raises `NotHere` where the index cannot be reached, or has none.
        """
        kind = "--no-binary=:all:" if sdist else "--only-binary=:all:"
        result = self.runner.run(
            self._any(steps), "-m", "pip", "index", "versions", *_QUIETLY, kind, package
        )
        found = _AVAILABLE.search(result.text)
        if result.returncode != 0 or found is None:
            raise _refusal(result, package)
        return tuple(re.split(r",\s*", found[1].strip()))

    def _any(self, steps: Steps) -> Path:
        """Return an interpreter that has pip: this one, if it has."""
        has_pip = importlib.util.find_spec("pip") is not None
        return Path(sys.executable) if has_pip else self.ready(steps)

    def ready(self, steps: Steps) -> Path:
        """The interpreter of an environment that has what it takes to read an sdist.

        It is made now unless it is there whole.
        """
        python, whole = self._home / "bin" / "python", self._home / "whole"
        with self.store.lock("pip", steps, "setting up pip"):
            # The interpreter it was made with may be gone.
            if (
                whole.exists()
                and python.exists()
                and self.runner.run(python, "-m", "pip", "--version").ok
            ):
                return python
            shutil.rmtree(self._home, ignore_errors=True)
            with steps.step("setting up pip", log=self.runner.log):
                made = self.runner.run(sys.executable, "-m", "venv", self._home, watch=steps.watch)
                if made.returncode != 0:
                    raise NotHere(
                        "python -m venv fails",
                        hint="Debian, Ubuntu: apt-get install python3-venv",
                        trouble=True,
                    )
                self._install(python, _TO_READ_SDISTS, steps)
            whole.touch()
        return python

    def _told(self, python: Path) -> tuple[str, ...]:
        """Choose the progress bar that can be read; an older pip has none off a terminal."""
        version = _VERSION.match(self.runner.run(python, "-m", "pip", "--version").text)
        new = version is not None and (int(version[1]), int(version[2])) >= _RAW_BAR_SINCE
        return ("--progress-bar", "raw") if new else ()

    def _install(self, python: Path, packages: Sequence[str], steps: Steps) -> None:
        result = self.runner.run(
            python, "-m", "pip", "install", *_QUIETLY, *packages, watch=steps.watch
        )
        if result.returncode != 0:
            raise _refusal(result, ", ".join(packages))


def _refusal(result: Result, what: str) -> NotHere:
    """Why pip did not deliver. Where it knows of no version at all, the index is what failed."""
    if _OTHERS.search(result.text):
        return NotHere(f"no {what}")
    if "No matching distribution" in result.text:
        return NotHere(f"no {what}: the package index has none, or cannot be reached", trouble=True)
    return NotHere(f"pip: {result.error}", trouble=True)
