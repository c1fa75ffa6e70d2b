"""A build: one llama-server binary with its identity."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from harness.builds.acceptance import check_runs
from harness.builds.number import number_by_place
from harness.builds.origin import Origin
from harness.errors import RequestError, ServerError
from harness.files import libraries_sha256, sha256_of
from harness.server.capabilities import Capabilities, probe
from harness.server.guard import Guard
from harness.server.process import Program

_USUAL_FOLDERS = {"bin", "build", "Release", "Debug"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A probed binary."""

    id: str
    """Short and unique in a session: the commit, where it is known."""
    origin: Origin
    capabilities: Capabilities
    sha256: str
    libraries_sha256: str | None
    """Of the shared libraries beside the binary: in a dynamic build they are the server."""
    launcher: tuple[str, ...] = ()

    @property
    def number(self) -> int | None:
        """The build number, where the binary says a believable one or its place tells it."""
        return self.capabilities.build_number or self.origin.number

    @property
    def program(self) -> Program:
        """What servers are started from."""
        return Program(self.origin.path, self.capabilities, self.launcher)

    @property
    def title(self) -> str:
        """`b10434 (7e4c0a9)`, or as much of it as is known."""
        number = f"b{self.number}" if self.number else "build of unknown number"
        return f"{number} ({self.capabilities.commit or 'commit unknown'})"

    def to_json(self) -> dict[str, Any]:
        """Plain data, to be handed to another process."""
        return {
            "id": self.id,
            "path": str(self.origin.path),
            "said_by": self.origin.said_by,
            "number": self.origin.number,
            "provided": self.origin.provided,
            "ref": self.origin.ref,
            "device": self.origin.device,
            "capabilities": self.capabilities.to_json(),
            "sha256": self.sha256,
            "libraries_sha256": self.libraries_sha256,
            "launcher": list(self.launcher),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(
            id=data["id"],
            origin=Origin(
                path=Path(data["path"]),
                said_by=data["said_by"],
                number=data["number"],
                provided=data["provided"],
                ref=data["ref"],
                device=data["device"],
            ),
            capabilities=Capabilities.from_json(data["capabilities"]),
            sha256=data["sha256"],
            libraries_sha256=data["libraries_sha256"],
            launcher=tuple(data["launcher"]),
        )

    def facts(self) -> dict[str, Any]:
        """What a ledger says of the build."""
        return {
            "id": self.id,
            "path": str(self.origin.path),
            "said_by": self.origin.said_by,
            "number": self.number,
            "commit": self.capabilities.commit,
            "version": self.capabilities.version,
            "devices": list(self.capabilities.devices),
            "sha256": self.sha256,
            "libraries_sha256": self.libraries_sha256,
        }


def examine(origins: Sequence[Origin], launcher: tuple[str, ...] = ()) -> tuple[Build, ...]:
    """Probe each binary once. Raises `UsageProblem` for the first that is no llama-server."""
    with Guard() as guard:
        probed = [(origin, probe(origin.path, guard.session)) for origin in origins]
        found = [(_numbered(*one, guard), one[1]) for one in probed]
    builds: list[Build] = []
    for origin, capabilities in found:
        taken = {build.id for build in builds}
        builds.append(
            Build(
                id=_id(capabilities, origin, taken),
                origin=origin,
                capabilities=capabilities,
                sha256=sha256_of(origin.path),
                libraries_sha256=libraries_sha256(origin.path.resolve().parent),
                launcher=launcher,
            )
        )
    return tuple(builds)


def accept(builds: Iterable[Build], seconds: float) -> None:
    """Raise `DoesNotRun` for the first build that this machine's CPU cannot run.

    Each answers one request, which is remembered. `seconds` is how long a build may take to get
    ready, and to answer. Other trouble than the CPU's is left to the scenarios, which report it.
    """
    for build in builds:
        with suppress(ServerError, RequestError):
            check_runs(
                build.program,
                (build.sha256, build.libraries_sha256),
                title=build.title,
                number=build.number,
                seconds=seconds,
            )


def _numbered(origin: Origin, capabilities: Capabilities, guard: Guard) -> Origin:
    """Add the number that the binary's place tells, where nobody else knows it."""
    if capabilities.build_number or origin.number:
        return origin
    number = number_by_place(origin.path, capabilities.commit, guard)
    return replace(origin, number=number)


def _id(capabilities: Capabilities, origin: Origin, taken: set[str]) -> str:
    number = capabilities.build_number or origin.number
    base = f"b{number}" if number else capabilities.commit or _folder_name(origin.path)
    candidates = (base, *(f"{base}.{count}" for count in range(2, len(taken) + 3)))
    return next(candidate for candidate in candidates if candidate not in taken)


def _folder_name(path: Path) -> str:
    """What people call a build of no known commit: the folder it is in, but for the usual ones."""
    names = (re.sub(r"\W", "_", parent.name) for parent in path.parents)
    return next((name for name in names if name and name not in _USUAL_FOLDERS), "server")
