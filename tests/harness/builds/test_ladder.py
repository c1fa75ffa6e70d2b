"""From a ref to a binary, by a repository whose builds become the real server."""

from __future__ import annotations

import io
import itertools
import os
import platform
import re
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import TextIO

import pytest

from harness.builds.base import Flavour
from harness.builds.ladder import Broken, Missing, Outcome, Ready, ready
from harness.builds.obtain import ladder, obtain
from harness.builds.ref import parse
from harness.builds.release import ReleaseRung
from harness.builds.source import SourceRung
from harness.builds.steps import Steps
from harness.builds.store import Store
from harness.errors import NotObtained
from harness.server.capabilities import probe
from tests.harness.builds.fake_upstream import BROKEN, FakeUpstream
from tests.harness.fake_http import FakeServer
from tests.harness.fake_releases import COMMIT, REPO, FakeReleases, tar_gz
from tests.harness.fronts.trial import ROOT


@pytest.fixture
def told() -> io.StringIO:
    """What is said of the way."""
    return io.StringIO()


def by_source(
    text: str, store: Store, environ: Mapping[str, str], told: TextIO | None = None
) -> Outcome:
    """What the store and the source have; the wheel and the sdist are on the network."""
    ref = parse(text)
    with ladder(ref, Flavour.CPU, store, environ) as whole:
        whole.rungs = [rung for rung in whole.rungs if isinstance(rung, SourceRung)]
        return whole.obtain(ref, Flavour.CPU, Steps(text, told or io.StringIO()))


def test_commit_is_built_and_found_again(
    store: Store, environ: Mapping[str, str], fake_upstream: FakeUpstream, told: io.StringIO
) -> None:
    name = fake_upstream.commit()
    outcome = by_source("master", store, environ, told)
    assert isinstance(outcome, Ready)
    assert outcome.entry is not None
    facts = outcome.entry.facts
    assert (facts.commit, facts.number, facts.rung) == (name, 1, "source")
    assert probe(outcome.path).commit == name[:12]
    assert facts.compiler
    assert "-DBUILD_SHARED_LIBS=OFF" in facts.flags
    steps = told.getvalue()
    for step in ("fetching", "checking out", "configuring", "compiling", " s\n", "(log: "):
        assert step in steps
    fake_upstream.path.rename(fake_upstream.path.with_name("gone"))
    for text in (name, name[:8], "b1"):
        again = by_source(text, store, environ)
        assert isinstance(again, Ready)
        assert again.path == outcome.path


def test_long_steps_are_told_while_they_last(
    store: Store,
    environ: Mapping[str, str],
    fake_upstream: FakeUpstream,
    told: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Redirected, by a clock on which half a minute passes between any two looks."""
    monkeypatch.setattr("harness.builds.command._LOOK_SECONDS", 0.01)
    fake_upstream.commit()
    ref, seconds = parse("master"), itertools.count(step=30.0)
    with ladder(ref, Flavour.CPU, store, environ) as whole:
        whole.rungs = [rung for rung in whole.rungs if isinstance(rung, SourceRung)]
        steps = Steps("master", told, clock=lambda: next(seconds))
        assert isinstance(whole.obtain(ref, Flavour.CPU, steps), Ready)
    for step in ("configuring", "compiling llama-server"):
        assert re.search(rf"^master: {step}: (\d+ %, )?\d+\.\d min$", told.getvalue(), re.MULTILINE)


def test_number_without_a_tag_is_told_the_nearest(
    store: Store, environ: Mapping[str, str], fake_upstream: FakeUpstream, told: io.StringIO
) -> None:
    for tag in (True, True, False, True):
        fake_upstream.commit(tag=tag)
    outcome = by_source("b3", store, environ, told)
    assert isinstance(outcome, Missing)
    near = "nearest are b2 (source), b4 (source): llama-harness get b2"
    assert outcome.hint == near
    assert told.getvalue().endswith(f"b3: {near}\n")
    with pytest.raises(NotObtained, match=r"b3 is nowhere: .* has no tag b3 \(nearest are b2"):
        ready(outcome)


def test_each_build_is_of_its_own_commit(
    store: Store, environ: Mapping[str, str], fake_upstream: FakeUpstream
) -> None:
    fake_upstream.commit()
    fake_upstream.commit("// two")
    head = fake_upstream.pull_request(7)
    paths = {}
    for text in ("b1", "b2", "PR#7"):
        outcome = by_source(text, store, environ)
        assert isinstance(outcome, Ready)
        paths[text] = outcome.path
    assert len(set(paths.values())) == 3
    assert probe(paths["b1"]).commit == fake_upstream.git("rev-parse", "b1")[:12]
    assert probe(paths["PR#7"]).commit == head[:12]


def test_what_does_not_build_is_a_value(
    store: Store, environ: Mapping[str, str], fake_upstream: FakeUpstream
) -> None:
    fake_upstream.commit(BROKEN)
    outcome = by_source("master", store, environ)
    assert isinstance(outcome, Broken)
    assert "error:" in outcome.error
    assert "does_not_compile" in outcome.error
    assert outcome.error in outcome.log.read_text()
    assert store.entries() == []
    with pytest.raises(NotObtained, match=r"master does not build: .*does_not_compile"):
        ready(outcome)


def test_cmake_that_fails_is_named(
    store: Store, environ: Mapping[str, str], fake_upstream: FakeUpstream
) -> None:
    fake_upstream.commit()
    (fake_upstream.path / "CMakeLists.txt").write_text("find_package(Nonesuch REQUIRED)\n")
    fake_upstream.git("commit", "--quiet", "-am", "needs something")
    outcome = by_source("master", store, environ)
    assert isinstance(outcome, Broken)
    assert outcome.error.startswith("CMake: CMakeLists.txt:1: ")
    assert "Nonesuch" in outcome.error


@pytest.mark.parametrize(
    ("lacks", "said"), [("git", "there is no git"), ("cmake", "there is no cmake")]
)
def test_machine_without_the_tools(
    store: Store,
    environ: Mapping[str, str],
    fake_upstream: FakeUpstream,
    tmp_path: Path,
    lacks: str,
    said: str,
) -> None:
    name = fake_upstream.commit()
    outcome = by_source(name, store, {**environ, "PATH": str(_path_without(lacks, tmp_path))})
    assert isinstance(outcome, Missing)
    assert said in str(outcome)
    assert "apt-get install" in outcome.hint


def test_machine_without_a_compiler(
    store: Store, environ: Mapping[str, str], fake_upstream: FakeUpstream, tmp_path: Path
) -> None:
    fake_upstream.commit()
    path = _path_without("c++", tmp_path, "g++", "gcc", "cc", "clang", "clang++", "CC", "CL")
    outcome = by_source("master", store, {**environ, "PATH": str(path)})
    assert isinstance(outcome, Missing)
    assert "there is no C++ compiler" in str(outcome)
    assert outcome.attempts[-1].trouble  # nothing is known of the commit


def _path_without(*names_and_directory: str | Path) -> Path:
    """A PATH of everything that is on this one but for some programs."""
    names = {name for name in names_and_directory if isinstance(name, str)}
    (home,) = (place for place in names_and_directory if isinstance(place, Path))
    programs = home / "programs"
    programs.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).glob("*"):
            bare = program.name.rstrip("0123456789-.")
            versioned = bare != program.name and bare in names
            link = programs / program.name
            if program.name not in names and not versioned and not link.exists():
                link.symlink_to(program)
    return programs


def test_repository_that_cannot_be_reached(
    store: Store, environ: Mapping[str, str], fake_upstream: FakeUpstream
) -> None:
    fake_upstream.path.rename(fake_upstream.path.with_name("gone"))
    for text in ("master", "PR#7", "b1", "abcdef0"):
        outcome = by_source(text, store, environ)
        assert isinstance(outcome, Missing)
        assert "cannot be reached" in str(outcome)
        assert outcome.attempts[-1].trouble


NAME = "llama-b9999-bin-ubuntu-x64.tar.gz"


def released(real: Path, version: str) -> FakeReleases:
    """A release whose server is the real one, and says it is another version."""
    script = f'#!/bin/sh\n[ "$1" = --version ] && exec echo "{version}"\nexec {real} "$@"\n'
    archive = tar_gz({"llama-b9999/llama-server": script.encode()})
    return FakeReleases({NAME: archive}, number=9999)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the release here is for x86-64")
@pytest.mark.parametrize(
    ("version", "said"),
    [
        (f"version: 9999 ({COMMIT[:9]})", ""),
        (f"version: 1 ({COMMIT[:9]})", ""),  # from a shallow clone: the tag is the witness
        ("version: 9999 (1234567)", "what it has is commit 1234567, not c0ffee"),
        (f"version: 9998 ({COMMIT[:9]})", "what it has is said to be b9998 and b9999"),
    ],
    ids=["it", "shallow", "other commit", "other number"],
)
def test_release_is_what_it_says_it_is(
    store: Store, real_server: Path, version: str, said: str
) -> None:
    with FakeServer(released(real_server, version)) as server:
        environ = {**os.environ, "LLAMA_HARNESS_RELEASES": f"{server.url}/{REPO}"}
        ref = parse("b9999")
        with ladder(ref, Flavour.CPU, store, environ) as whole:
            whole.rungs = [rung for rung in whole.rungs if isinstance(rung, ReleaseRung)]
            outcome = whole.obtain(ref, Flavour.CPU, Steps("b9999", io.StringIO()))
    if said:
        assert isinstance(outcome, Missing)
        assert said in str(outcome)
        assert store.entries() == []
    else:
        assert isinstance(outcome, Ready)
        assert outcome.entry is not None
        facts = outcome.entry.facts
        assert (facts.commit, facts.number, facts.rung) == (COMMIT, 9999, "release")
        assert facts.archive_sha256


def test_what_is_no_llama_server_is_asked_of_no_other_place(
    store: Store, environ: Mapping[str, str], fake_upstream: FakeUpstream, tmp_path: Path
) -> None:
    """A build from before the prompt cache: whoever else has it has the same."""
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho its help names no prompt cache\n")
    old.chmod(0o755)
    fake_upstream.real = old
    fake_upstream.commit()
    ref = parse("b1")
    with ladder(ref, Flavour.CPU, store, environ) as whole:
        source = next(rung for rung in whole.rungs if isinstance(rung, SourceRung))
        whole.rungs = [source, source]
        outcome = whole.obtain(ref, Flavour.CPU, Steps("b1", io.StringIO()))
    assert isinstance(outcome, Missing)
    assert len(outcome.attempts) == 1
    assert "is not a llama-server" in str(outcome)


OBTAINING = """\
    import os, sys
    from pathlib import Path
    from harness.builds.store import Store
    from tests.harness.builds.test_ladder import by_source

    outcome = by_source(sys.argv[2], Store(Path(sys.argv[1])), os.environ, sys.stderr)
    print(type(outcome).__name__, getattr(outcome, "path", outcome), flush=True)
    """


def _obtaining(
    text: str, store: Store, environ: Mapping[str, str], tmp_path: Path
) -> subprocess.Popen[str]:
    """A process that obtains a build."""
    path = _path_with_slow_cmake(tmp_path)
    return subprocess.Popen(
        [sys.executable, "-c", dedent(OBTAINING), str(store.root), text],
        cwd=ROOT,
        env={**environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _path_with_slow_cmake(tmp_path: Path) -> Path:
    """CMake that says when it begins, and goes on when it is told to."""
    programs = tmp_path / "slow"
    if not programs.exists():
        programs.mkdir()
        os.mkfifo(programs / "began")
        os.mkfifo(programs / "go")
        script = programs / "cmake"
        script.write_text(
            f"#!/bin/sh\nif [ -p {programs}/began ]; then\n"
            f"echo $$ > {programs}/began; read on < {programs}/go\nfi\n"
            f'PATH=${{PATH#{programs}:}}\nexec cmake "$@"\n'
        )
        script.chmod(0o755)
    return programs


def test_killed_half_way_and_run_again(
    store: Store, environ: Mapping[str, str], fake_upstream: FakeUpstream, tmp_path: Path
) -> None:
    name = fake_upstream.commit()
    first = _obtaining(name, store, environ, tmp_path)
    began = tmp_path / "slow" / "began"
    cmake = int(began.read_text())  # waits until CMake runs
    first.send_signal(signal.SIGKILL)
    first.communicate()
    began.unlink()
    assert _ends(cmake)
    second = _obtaining(name, store, environ, tmp_path)
    output, _ = second.communicate()
    assert output.startswith("Ready ")
    assert [entry.facts.commit for entry in store.entries()] == [name]
    assert list((store.root / "filling").iterdir()) == []


def _ends(pid: int) -> bool:
    """Whether a process of somebody else's goes away."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 30)[0])
    finally:
        os.close(handle)


def test_two_at_once_build_once(
    store: Store, environ: Mapping[str, str], fake_upstream: FakeUpstream, tmp_path: Path
) -> None:
    name = fake_upstream.commit()
    first = _obtaining(name, store, environ, tmp_path)
    slow = tmp_path / "slow"
    assert int((slow / "began").read_text())  # the first one is at it
    others = [_obtaining(text, store, environ, tmp_path) for text in (name, name[:10])]
    for other in others:
        assert other.stderr is not None
        assert any("waiting for it" in line for line in other.stderr)
    (slow / "began").unlink()
    (slow / "go").write_text("on\n")
    outputs = [process.communicate() for process in (first, *others)]
    assert {output for output, _ in outputs} == {outputs[0][0]}
    assert outputs[0][0].startswith("Ready ")
    assert sum("compiling llama-server:" in said for _, said in outputs) == 1


def test_usual_ladder_tells_what_each_place_said(
    store: Store, environ: Mapping[str, str], fake_upstream: FakeUpstream, dead: str
) -> None:
    """Nobody has this one: each place is asked in turn, and says so."""
    fake_upstream.commit()
    nowhere = {"PIP_INDEX_URL": f"{dead}/simple/", "PIP_CONFIG_FILE": os.devnull}
    told = io.StringIO()
    outcome = obtain("b999999", store=store, environ={**environ, **nowhere}, out=told)
    assert isinstance(outcome, Missing)
    rungs = [attempt.rung for attempt in outcome.attempts]
    assert rungs == ["wheel", "release", "source", "sdist"]
    for attempt in outcome.attempts:
        assert f"{attempt.rung}: {attempt.said}" in told.getvalue()
