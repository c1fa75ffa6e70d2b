"""Accept a build once it has answered a request on this machine's CPU."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import platformdirs

from harness.client import Options
from harness.errors import DoesNotRun, RequestError
from harness.models.synthetic.store import generated
from harness.server.capabilities import ENDED_BY_SIGILL
from harness.server.config import CPU, ServerConfig
from harness.server.guard import Guard
from harness.server.log import ServerLog
from harness.server.process import LlamaServer, Program, ServerExited

_CPUINFO = Path("/proc/cpuinfo")
_SYSTEM_INFO = re.compile(r"system_info:.*?\| CPU : (.*)")
_FEATURE = re.compile(r"(\w+) = 1\b")
_CPU_FLAGS = {
    "SSE3": "pni",
    "SSSE3": "ssse3",
    "AVX": "avx",
    "AVX_VNNI": "avx_vnni",
    "AVX2": "avx2",
    "F16C": "f16c",
    "FMA": "fma",
    "BMI2": "bmi2",
    "AVX512": "avx512f",
    "AVX512_VBMI": "avx512vbmi",
    "AVX512_VNNI": "avx512_vnni",
    "AVX512_BF16": "avx512_bf16",
    "AMX_INT8": "amx_int8",
}
"""What llama-server says it was compiled for, and the flag of a CPU that has it."""
_FAMILIES = {"AVX512": "AVX-512", "AMX": "AMX"}
_RUNS_ANYWHERE = 10068
"""The newest prebuilt wheel that needs no more than AVX2."""
_SECONDS = 60.0


def check_runs(
    program: Program,
    sha256: Sequence[str | None],
    *,
    title: str,
    number: int | None = None,
    seconds: float = _SECONDS,
) -> None:
    """Make a build answer one request with a generated model. Raises `DoesNotRun` for SIGILL.

    `sha256` are those of the binary and its libraries: a success is remembered by them, the CPU
    and the launcher. Raises `ServerError` or `RequestError` for other trouble, which the caller
    may leave to the scenarios.
    """
    if is_accepted(sha256, program.launcher):
        return
    with tempfile.TemporaryDirectory(prefix="llama-harness.") as directory, Guard() as guard:
        log = Path(directory, "server.log")
        device = CPU if program.capabilities.supports("--device") else None
        model = generated().file.path
        config = ServerConfig(model=model, device=device, parallel=1, ctx_size=512, threads=1)
        server = LlamaServer(program, config, guard=guard, log_path=log, ready_seconds=seconds)
        try:
            _answer(server, seconds)
        except ServerExited as error:
            if error.returncode not in ENDED_BY_SIGILL:
                raise
            raise _refusal(program, ServerLog(log), title, number) from None
    mark = _mark(sha256, program.launcher)
    with suppress(OSError):  # a cache nobody may write: the build is tried again next time
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def is_accepted(sha256: Sequence[str | None], launcher: Sequence[str] = ()) -> bool:
    """Return whether a build has answered a request on this CPU before."""
    return _mark(sha256, launcher).exists()


def cpu_name() -> str:
    """Return what this machine calls its CPU."""
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def _answer(server: LlamaServer, seconds: float) -> None:
    """Start a server, ask it for one token, and end it."""
    with server:
        try:
            server.client.completion("x", Options(n_predict=1), timeout=seconds)
        except RequestError as error:
            raise server.cause(error) from None


def _refusal(program: Program, log: ServerLog, title: str, number: int | None) -> DoesNotRun:
    """Say which instructions the build was compiled for that this CPU does not have."""
    emulator = f" under {' '.join(program.launcher)}" if program.launcher else ""
    used = _compiled_for(log.since(0).text())
    has = set(_cpuinfo().get("flags", "").split())
    # Under an emulator the flags are those of another CPU: what fewest CPUs have is named.
    lacking = [name for name in used if _CPU_FLAGS[name] not in has and not emulator]
    rare = [name for name in used if name.startswith(tuple(_FAMILIES))]
    names = (rare or used) if emulator else lacking
    families = "/".join(dict.fromkeys(_family(name) for name in names))
    owner = "the CPU there" if emulator else cpu_name()
    uses = f"it uses {families}," if families else "it ends with SIGILL at an instruction"
    by = f": llama-harness get sdist:b{number}" if number else ""
    may_help = number != _RUNS_ANYWHERE and "avx2" in has  # which that wheel needs itself
    instead = f"take wheel:0.{_RUNS_ANYWHERE}.0, or " if may_help else ""
    return DoesNotRun(
        f"{title} does not run on this CPU{emulator}: {uses} which {owner} does not have",
        hint=f"{instead}build it on this machine{by}",
    )


def _compiled_for(log: str) -> list[str]:
    """Return the CPU features a server was compiled for, by its own log."""
    said = _SYSTEM_INFO.search(log)
    return [name for name in _FEATURE.findall(said[1] if said else "") if name in _CPU_FLAGS]


def _family(feature: str) -> str:
    return next((name for start, name in _FAMILIES.items() if feature.startswith(start)), feature)


def _cpuinfo() -> dict[str, str]:
    """Return what the system says of its first processor; empty where it does not."""
    try:
        first = _CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _mark(sha256: Sequence[str | None], launcher: Sequence[str]) -> Path:
    """Return the file that remembers a build, this CPU and a launcher."""
    cpu = [platform.machine(), cpu_name(), *sorted(_cpuinfo().get("flags", "").split())]
    key = hashlib.sha256(json.dumps([sha256, launcher, cpu]).encode()).hexdigest()
    return platformdirs.user_cache_path("llama-cache-harness") / "accepted" / key
