"""How an operator means to run llama-server: a TOML file of a few keys."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import UsageProblem
from harness.known_bugs import load
from harness.models.published import PUBLISHED
from harness.server.device import DEVICES
from harness.session import GENERATED, check_seconds

KEYS: Mapping[str, str] = {
    "args": "--llama-arg",
    "model": "--llama-model",
    "lora": "--llama-lora",
    "memory": "--llama-memory",
    "device": "--llama-device",
    "timeout": "--llama-timeout",
}
"""What the file may say that an option of pytest says, too."""


def read_deployment(path: Path) -> dict[str, Any]:
    """What a file says, as fields of `Server`, and `accept`: issues of known bugs.

    Paths in it are relative to the file. Raises `UsageProblem` for one that is no such file.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageProblem(
            f"{path} cannot be read: {error.strerror}", hint="--config takes a TOML file"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageProblem(
            f"{path} is not TOML: {_line(error)}",
            hint="llama-harness check --help shows an example",
        ) from None
    if unknown := [key for key in data if key not in _READ]:
        raise UsageProblem(
            f"{path}: nothing is known of {', '.join(map(repr, unknown))}",
            hint=f"keys are {', '.join(_READ)}",
        )
    if {"model", "memory"} <= data.keys():
        raise UsageProblem(
            f"{path}: memory chooses among generated models, and model is your own",
            hint="leave one of them out",
        )
    if {"model", "accept"} <= data.keys():
        raise UsageProblem(
            f"{path}: known bugs are those of generated models, and model is your own",
            hint="leave accept out",
        )
    fields: dict[str, Any] = {}
    for key, value in data.items():
        try:
            name, read = _READ[key]
            fields[name] = read(value, path.absolute().parent)
        except UsageProblem as problem:
            raise UsageProblem(f"{path}: {problem.message}", hint=problem.hint) from None
    return fields


def in_keys(text: str) -> str:
    """What was said of pytest's options, said of the keys of the file."""
    for key, option in KEYS.items():
        text = re.sub(rf"{option}(?![\w-])", key, text)
    return text


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _args(value: object, _: Path) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(_text("args", word) for word in value)
    try:
        return tuple(shlex.split(_text("args", value)))
    except ValueError as error:
        raise UsageProblem(
            f"args cannot be read: {error}", hint='as on a command line: args = "-fa on -np 4"'
        ) from None


def _model(value: object, directory: Path) -> str:
    name = _text("model", value)
    return name if name in (GENERATED, *PUBLISHED) else _path(name, directory)


def _loras(value: object, directory: Path) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise UsageProblem("lora must be a list of paths", hint='lora = ["a.gguf"]')
    return tuple(_path(_text("lora", path), directory) for path in value)


def _memory(value: object, _: Path) -> str:
    return _text("memory", value)


def _device(value: object, _: Path) -> str:
    if value not in DEVICES:
        raise UsageProblem(f"device must be one of {', '.join(DEVICES)}")
    return str(value)


def _accept(value: object, _: Path) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise UsageProblem("accept must be a list of issues", hint='accept = ["#26207"]')
    issues = tuple(_text("accept", issue) for issue in value)
    known = sorted({bug.issue for bug in load()})
    if unknown := [issue for issue in issues if issue not in known]:
        raise UsageProblem(
            f"accept: no known bug {', '.join(unknown)}", hint=f"there are {'; '.join(known)}"
        )
    return issues


def _timeout(value: object, _: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageProblem("timeout must be a number of seconds", hint="timeout = 120")
    check_seconds("timeout", value)
    return float(value)


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise UsageProblem(f"{key}: {value!r} is not a text", hint="write it in quotes")
    return value


def _path(name: str, directory: Path) -> str:
    return str(directory / os.path.expanduser(name))  # noqa: PTH111  # raises nothing


_READ: Mapping[str, tuple[str, Callable[[object, Path], object]]] = {
    "args": ("args", _args),
    "model": ("model", _model),
    "lora": ("loras", _loras),
    "memory": ("memory", _memory),
    "device": ("device", _device),
    "timeout": ("seconds", _timeout),
    "accept": ("accept", _accept),
}
"""The field of `Server` for a key, and how its value is read."""
