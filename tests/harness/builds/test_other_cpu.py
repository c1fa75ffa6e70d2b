"""A place may have a build that was compiled for another CPU: then the next place is asked."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.builds.base import Delivery, Flavour, Rung, Wanted
from harness.builds.ladder import Missing, Outcome, Ready, ready
from harness.builds.obtain import ladder
from harness.builds.ref import parse
from harness.builds.steps import Steps
from harness.builds.store import Store
from harness.errors import DoesNotRun
from harness.server.process import Program

NUMBER = 10434


@dataclass(frozen=True, slots=True)
class Place:
    """A place with one build: the real server, or one that this CPU cannot run."""

    name: str
    real: Path
    runs: bool = True

    def deliver(self, wanted: Wanted, into: Path, steps: Steps) -> Delivery:
        """See `Rung`."""
        start = f'exec {self.real} "$@"' if self.runs else "kill -ILL $$"
        script = into / "llama-server"
        script.write_text(
            f"#!/bin/sh\ncase $1 in --version|--help|--list-devices) exec {self.real} $1;; esac\n"
            f"# {self.name}\n{start}\n"
        )
        script.chmod(0o755)
        return Delivery(binary=Path("llama-server"), source=self.name, number=NUMBER)

    def numbers(self, wanted: Wanted, steps: Steps) -> frozenset[int]:
        """See `Rung`."""
        raise AssertionError("a place that has the build is not asked what else it has")


def by(places: Sequence[Rung], store: Store, told: io.StringIO | None = None) -> Outcome:
    ref = parse(f"b{NUMBER}")
    with ladder(ref, Flavour.CPU, store, os.environ) as whole:
        whole.rungs = places
        return whole.obtain(ref, Flavour.CPU, Steps(str(ref), told or io.StringIO()))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_next_place_is_asked(store: Store, real_server: Path) -> None:
    told = io.StringIO()
    places = [Place("wheel", real_server, runs=False), Place("source", real_server)]
    outcome = by(places, store, told)
    assert isinstance(outcome, Ready)
    assert outcome.entry is not None
    assert outcome.entry.facts.rung == "source"
    assert "wheel: it ends with SIGILL" in told.getvalue()
    assert [entry.facts.rung for entry in store.entries()] == ["source"]


def test_no_place_has_one_that_runs_here(store: Store, real_server: Path) -> None:
    outcome = by([Place("wheel", real_server, runs=False)], store)
    assert isinstance(outcome, Missing)
    with pytest.raises(DoesNotRun, match=rf"b{NUMBER} does not run on this CPU: wheel: it ends"):
        ready(outcome)


def test_a_store_that_another_machine_filled(
    store: Store, real_server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was accepted there is tried again here."""
    places = [Place("wheel", real_server), Place("source", real_server)]
    first = by(places, store)
    assert isinstance(first, Ready)
    assert first.entry is not None
    assert first.entry.facts.rung == "wheel"
    # The same bytes on another CPU: what the trial there would say is said here.
    monkeypatch.setattr("harness.builds.ladder.is_accepted", lambda sums: False)
    monkeypatch.setattr("harness.builds.ladder.check_runs", _refuse_wheel)
    again = by(places, store)
    assert isinstance(again, Ready)
    assert again.entry is not None
    assert again.entry.facts.rung == "source"


def _refuse_wheel(program: Program, sums: object, **about: object) -> None:
    if "# wheel\n" in program.binary.read_text():
        raise DoesNotRun("b10434 does not run on this CPU: it uses AVX-512")
