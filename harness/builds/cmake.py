"""Builds llama-server from a source tree, at one path for all builds, so that ccache finds them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.builds.base import Delivery, DoesNotBuild, Flavour, NotHere
from harness.builds.command import Result, Runner, installed
from harness.builds.compiling import first_error, trouble
from harness.builds.steps import Steps
from harness.builds.store import Store

TARGET = "llama-server"

# Only the server, linked statically: shared libraries keep the path of the build tree, where those
# of the next build are. No native instructions, so that a store may move between machines.
# What a version of upstream does not know, it leaves unused.
_FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DGGML_NATIVE=OFF",
    "-DGGML_OPENMP=OFF",
    "-DGGML_CCACHE=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_TOOLS=ON",
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_WEBUI=OFF",
)
_BACKEND = {
    Flavour.CPU: (),
    Flavour.CUDA: ("-DGGML_CUDA=ON",),
    Flavour.VULKAN: ("-DGGML_VULKAN=ON",),
}
_LONGEST = 3 * 3600.0
"""Seconds after which a build hangs: others wait for it."""
_COMPILER = re.compile(r"The CXX compiler identification is (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What a build is to say of itself: it cannot find out itself in a tree without history."""

    commit: str | None
    number: int | None

    @property
    def flags(self) -> tuple[str, ...]:
        """As CMake is told."""
        commit = self.commit[:12] if self.commit else "unknown"
        return (f"-DLLAMA_BUILD_NUMBER={self.number or 0}", f"-DLLAMA_BUILD_COMMIT={commit}")


class Workshop:
    """The one place where sources are built, and the locks that keep it so."""

    def __init__(self, store: Store, runner: Runner) -> None:
        self._store, self._runner = store, runner
        self._home = store.root / "source"
        self.tree = self._home / "llama.cpp"
        """Where the source has to be."""

    @contextmanager
    def cleared(self, steps: Steps) -> Iterator[Path]:
        """The path of the tree, which is not there, for nobody but the caller."""
        with self._store.lock("source", steps, "building another one"):
            self._home.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self.tree, ignore_errors=True)
            try:
                yield self.tree
            finally:
                shutil.rmtree(self._home, ignore_errors=True)

    def build(self, flavour: Flavour, version: Version, *, into: Path, steps: Steps) -> Delivery:
        """Builds what is in the tree and puts the binary into a directory.

        Raises `DoesNotBuild`, or `NotHere` where the machine lacks something.
        """
        runner = self._runner
        if installed("cmake", runner.environ) is None:
            hint = "pip install cmake, or apt-get install cmake"
            raise NotHere("there is no cmake", hint=hint, trouble=True)
        flags = (*_FLAGS, *_BACKEND[flavour], *_tools(runner, steps))
        build = self._home / "build"
        with steps.step("configuring", log=runner.log):
            configured = runner.run(
                *("cmake", "-S", self.tree, "-B", build),
                *flags,
                *version.flags,
                seconds=_LONGEST,
                watch=steps.watch,
            )
        _check(configured, runner.log)
        steps.say("what ccache does not know takes minutes to compile")
        with steps.step("compiling llama-server"):
            built = runner.run(
                *("cmake", "--build", build, "--target", TARGET, "--parallel", _jobs(runner)),
                seconds=_LONGEST,
                watch=steps.watch,
            )
        _check(built, runner.log)
        binary = _binary(build)
        shutil.copy2(binary, into / TARGET)
        compiler = _COMPILER.search(configured.text)
        return Delivery(
            binary=Path(TARGET),
            source="",  # the caller's
            commit=version.commit,
            number=version.number,
            flags=flags,
            compiler=compiler[1].strip() if compiler else None,
        )


def _tools(runner: Runner, steps: Steps) -> tuple[str, ...]:
    """How it is built faster here."""
    flags: tuple[str, ...] = ()
    if installed("ninja", runner.environ):
        flags += ("-GNinja",)
    if installed("ccache", runner.environ):
        flags += ("-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    else:
        steps.say("without ccache every build takes minutes (apt-get install ccache)")
    return flags


def _jobs(runner: Runner) -> str:
    said = runner.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", "")
    return said if re.fullmatch(r"[1-9][0-9]*", said) else str(os.cpu_count() or 1)


def _check(result: Result, log: Path) -> None:
    if result.returncode == 0:
        return
    if result.returncode < 0:
        raise NotHere(f"CMake was killed by signal {-result.returncode}", trouble=True)
    if found := trouble(result.text):
        raise found
    raise DoesNotBuild(first_error(result.text) or result.last_line, log)


def _binary(build: Path) -> Path:
    """Where upstream's CMake, or another's, has put it."""
    for place in (build / "bin" / TARGET, build / TARGET, build / "tools" / "server" / TARGET):
        if place.is_file():
            return place
    raise NotHere(f"the build made no {TARGET} where one was looked for")
