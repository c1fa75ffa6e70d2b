"""What one run of the suite is about: decided once, on the controller, before collection."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from harness import __version__
from harness.builds.base import Flavour
from harness.builds.build import Build, accept, examine
from harness.builds.ladder import ready
from harness.builds.obtain import obtain, origin
from harness.builds.origin import Origin, locate
from harness.builds.ref import parse
from harness.errors import UsageProblem
from harness.memory import Memory
from harness.models.published import PUBLISHED, fetched
from harness.models.spec import Model, ModelFile, TrainedContext
from harness.models.synthetic.store import DEFAULT, chosen, generated
from harness.models.synthetic.vocabulary import oracle
from harness.models.user import user_model
from harness.server.attached import Attached, attached
from harness.server.config import CPU, check_adapter_path, check_values, user_flags
from harness.server.device import AUTO, device_flag
from harness.server.launcher import parse_launcher
from harness.server.listener import Listener, listener

GENERATED = "generated"
"""`--llama-model` for the model the harness makes itself."""
DEFAULT_SECONDS = 60.0
"""`--llama-timeout`, unless it is given."""
_DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The builds, the model and the user's server arguments of one run."""

    builds: tuple[Build, ...]
    models: tuple[Model, ...]
    """Generated ones, or a single real one."""
    extra_args: tuple[str, ...]
    device: str
    """One of `DEVICES`."""
    attached: Attached | None = None
    """The server of scenarios, where a person has started it; `extra_args` are its words."""

    def device_flag(self, build: Build) -> str | None:
        """What `--device` says to servers of a build; None leaves it to the build."""
        asked = build.origin.device if self.device == AUTO else None
        return device_flag(asked or self.device, build.capabilities, str(build.origin.path))

    def _device_title(self, build: Build) -> str:
        said = user_flags(self.extra_args, build.capabilities)
        words = said.get(build.capabilities.spellings("--device")[0])
        flag = words[-1] if words else self.device_flag(build)
        return "CPU" if flag == CPU else flag or "its own choice"

    def to_json(self) -> dict[str, Any]:
        """Plain data, to be handed to a worker."""
        return {
            "builds": [build.to_json() for build in self.builds],
            "models": [_model_to_json(model) for model in self.models],
            "extra_args": list(self.extra_args),
            "device": self.device,
            "attached": self.attached and self.attached.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(
            builds=tuple(Build.from_json(build) for build in data["builds"]),
            models=tuple(_model_from_json(model) for model in data["models"]),
            extra_args=tuple(data["extra_args"]),
            device=data["device"],
            attached=data["attached"] and Attached.from_json(data["attached"]),
        )

    def facts(self, command: Sequence[str]) -> dict[str, Any]:
        """What the first row of a ledger says."""
        packages = ("pytest", "numpy", "gguf", "requests", "psutil", "huggingface_hub")
        return {
            "harness": __version__,
            "argv": list(command),
            "builds": [build.facts() for build in self.builds],
            "models": [
                {
                    "name": model.name,
                    "memory": model.memory.value,
                    "sha256": model.file.sha256,
                    "adapters": {k: v.sha256 for k, v in model.adapters.items()},
                }
                for model in self.models
            ],
            "server_args": list(self.extra_args),
            "device": self.device,
            "attached": self.attached and self.attached.facts(),
            "versions": {"python": platform.python_version()} | {p: version(p) for p in packages},
            "platform": f"{sys.platform} {platform.machine()}",
        }

    def header(self) -> list[str]:
        """Lines for the head of a run."""
        lines = []
        for build in self.builds:
            name = "" if build.title.startswith(f"{build.id} ") else f" {build.id}:"
            lines += [
                f"llama-server{name} {build.title}, device: {self._device_title(build)}",
                f"  by {build.origin.said_by}: {build.origin.path}",
            ]
        if self.attached is not None:
            lines.append(f"attached to: {self.attached.url}, process {self.attached.pid}")
        lines += _about(self.models)
        if self.extra_args:
            lines.append(f"server arguments: {shlex.join(self.extra_args)}")
        return lines


def prepare(
    *,
    binaries: Sequence[str],
    refs: Sequence[str] = (),
    flavour: str = Flavour.CPU,
    environ: dict[str, str],
    model: str,
    memory: str | None,
    loras: Sequence[str],
    args: Sequence[str],
    launcher: str | None,
    device: str = AUTO,
    url: str | None = None,
    seconds: float = DEFAULT_SECONDS,
) -> Session:
    """Find, probe and try out everything a run needs.

    `seconds` is how long a server may take to get ready. Raises `UsageProblem` for what cannot be
    used, `DoesNotRun` for a build that this CPU cannot run.
    """
    single = (model, device, *(value for value in (memory, url) if value is not None))
    if not all(isinstance(value, str) for value in (*binaries, *refs, *loras, *args, *single)):
        raise UsageProblem("`--` is no value for an option")  # argparse makes a list of it
    if url is not None:
        others = {
            "bin": binaries,
            "ref": refs,
            "arg": args,
            "launcher": launcher,
            "device": device != AUTO,
        }
        _refuse_beside_url([f"--llama-{option}" for option, given in others.items() if given])
        found = listener(url)
        return _attach(found, _models(model, memory, loras))
    words = _words(args)
    origins = _obtained(refs, Flavour(flavour), environ)
    if binaries or not refs:
        origins = [*locate(binaries, environ), *origins]
    builds = examine(origins, parse_launcher(launcher))
    for build in builds:
        given = user_flags(words, build.capabilities)
        check_values(words, build.capabilities)
        if device != AUTO and build.capabilities.spellings("--device")[0] in given:
            raise UsageProblem("--llama-arg and --llama-device both say which device")
    models = _models(model, memory, loras)
    session = Session(builds=builds, models=models, extra_args=words, device=device)
    for build in builds:
        session.device_flag(build)
    accept(builds, seconds)
    return session


def _obtained(refs: Sequence[str], flavour: Flavour, environ: Mapping[str, str]) -> list[Origin]:
    """The builds of `--llama-ref`."""
    for ref in refs:
        parse(ref)  # all of them, before one is built for minutes
    return [
        origin(ready(obtain(ref, flavour, environ=environ)), flavour, "--llama-ref") for ref in refs
    ]


def _refuse_beside_url(options: Sequence[str]) -> None:
    if options:
        raise UsageProblem(
            f"{options[0]} and --llama-url cannot be had together",
            hint="the server that is attached to runs already, as it was started",
        )


def _attach(found: Listener, models: Sequence[Model]) -> Session:
    """A session about a server that a person has started."""
    builds = examine([Origin(path=found.program, said_by="--llama-url")])
    server = attached(found, builds[0].capabilities)
    served = [model for model in models if model.file.path.resolve() == server.model]
    if not served:
        names = ", ".join(model.name for model in models)
        raise UsageProblem(
            f"the server's model {server.model} is none of this run's: {names}",
            hint="start it with what `llama-harness model NAME` prints, or name its model with "
            "--llama-memory=NAME or --llama-model=PATH",
        )
    return Session(
        builds=builds,
        models=tuple(served),
        extra_args=server.extra_args,
        device=AUTO,
        attached=server,
    )


def check_seconds(name: str, seconds: float) -> None:
    """Raises `UsageProblem` for a time nobody can mean."""
    if not 0 < seconds <= _DAY:
        raise UsageProblem(f"{name}={seconds:g}: it must be above 0, a day at most")


def _words(args: Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(word for arg in args for word in shlex.split(arg))
    except ValueError as error:
        raise UsageProblem(f"--llama-arg cannot be read: {error}") from None


def _models(name: str, memory: str | None, loras: Sequence[str]) -> tuple[Model, ...]:
    """The models of a run, whose adapters a server can load."""
    models = _named(name, memory, loras)
    for adapter in (adapter for model in models for adapter in model.adapters.values()):
        check_adapter_path(adapter.path)
    return models


def _named(name: str, memory: str | None, loras: Sequence[str]) -> tuple[Model, ...]:
    if name != GENERATED and memory is not None:
        raise UsageProblem(
            "--llama-memory chooses among generated models, --llama-model is another"
        )
    if name != GENERATED and name not in PUBLISHED:
        names = ", ".join((GENERATED, *PUBLISHED))
        paths = [_path(lora) for lora in loras]
        return (user_model(_path(name), paths, if_missing=f"names are: {names}"),)
    if loras:
        raise UsageProblem(
            "--llama-lora needs --llama-model=PATH", hint=f"{name} has its own adapters"
        )
    if name != GENERATED:
        return (fetched(name),)
    return tuple(generated(one) for one in chosen(DEFAULT if memory is None else memory))


def _path(given: str) -> Path:
    return Path(os.path.expanduser(given))  # noqa: PTH111  # raises nothing for an unknown user


def _about(models: Sequence[Model]) -> list[str]:
    """Which models, with what a person may want to know of a real one."""
    if models[0].oracle is not None:
        names = ", ".join(f"{model.name} ({model.memory})" for model in models)
        return [f"generated models: {names}", "answers judged by: cell and cold runs"]
    (model,) = models
    files = (f"{letter} {file.path.name}" for letter, file in model.adapters.items())
    adapters = ", ".join(files) or "none"
    return [
        f"model: {model.name} ({model.memory}), adapters: {adapters}, answers judged by: cold runs"
    ]


def _model_to_json(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "memory": model.memory.value,
        "judged_by_cell": model.oracle is not None,
        "trained": model.trained and asdict(model.trained),
        "file": _file_to_json(model.file),
        "adapters": {k: _file_to_json(v) for k, v in model.adapters.items()},
    }


def _model_from_json(data: dict[str, Any]) -> Model:
    return Model(
        name=data["name"],
        file=_file_from_json(data["file"]),
        adapters={k: _file_from_json(v) for k, v in data["adapters"].items()},
        memory=Memory(data["memory"]),
        oracle=oracle() if data["judged_by_cell"] else None,
        trained=data["trained"] and TrainedContext(**data["trained"]),
    )


def _file_to_json(file: ModelFile) -> list[str]:
    return [str(file.path), file.sha256]


def _file_from_json(data: list[str]) -> ModelFile:
    return ModelFile(Path(data[0]), data[1])
