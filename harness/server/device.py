"""Where a server computes: the device a person names, and the server's own report of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import UsageProblem
from harness.server.capabilities import Capabilities
from harness.server.config import CPU

AUTO = "auto"
_GPUS: Mapping[str, str] = {"cuda": "CUDA", "vulkan": "Vulkan"}
"""What `--list-devices` calls the devices of a kind: this, and a number."""
DEVICES = ("cpu", *_GPUS, AUTO)
"""What a person may name."""

_LAYERS = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_MEMORY = re.compile(r"(?:llama_kv_cache|llama_memory_recurrent)\S*\s+(\S+) (?:KV|RS) buffer size")


@dataclass(frozen=True, slots=True)
class Offload:
    """What a server says of where it has its layers and its memory."""

    layers: tuple[int, int]
    """On a GPU, and in all; (0, 0) where nothing is said."""
    memory: frozenset[str]
    """Devices that hold KV or recurrent state; `CPU` is one."""


def device_flag(wanted: str, capabilities: Capabilities, program: str) -> str | None:
    """What `--device` is to say for one of `DEVICES`; None leaves it to the build.

    Raises `UsageProblem` where the build, or the machine, has no such device.
    """
    if wanted == AUTO:
        return None
    if wanted == "cpu":
        return CPU
    name = re.compile(rf"({_GPUS[wanted]}\d+):")
    found = (name.match(line) for line in capabilities.devices)
    first = next(filter(None, found), None)
    if first is None:
        has = "; ".join(capabilities.devices) or "none"
        raise UsageProblem(
            f"--llama-device={wanted}: {program} has no {_GPUS[wanted]} device here; it has: {has}",
            hint=_hint(wanted),
        )
    return first[1]


def offload(log: str) -> Offload:
    """What a server's log says, at any level that the harness uses."""
    layers = _LAYERS.search(log)
    return Offload(
        layers=(int(layers[1]), int(layers[2])) if layers else (0, 0),
        memory=frozenset(_MEMORY.findall(log)),
    )


def not_offloaded(found: Offload, device: str) -> str | None:
    """What is not on the device it was to be on; None where all is."""
    on_gpu, layers = found.layers
    if not layers:
        return "nothing is said of where its layers are"
    if on_gpu < layers:
        return f"{on_gpu} of {layers} layers are on {device}"
    if elsewhere := found.memory - {device}:
        return f"KV or recurrent state is on {', '.join(sorted(elsewhere))}, not on {device}"
    return None if found.memory else f"no KV or recurrent state is on {device}"


def _hint(wanted: str) -> str:
    if wanted == "vulkan":
        return "a CPU that passes for a GPU (lavapipe) is listed with GGML_VK_VISIBLE_DEVICES=0"
    return "run it with --list-devices"
