"""The device a person names, and the server's own report of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.builds.build import Build
from harness.errors import UsageProblem
from harness.server.capabilities import Capabilities, probe
from harness.server.config import CPU
from harness.server.device import AUTO, Offload, device_flag, not_offloaded, offload

ROOT = Path(__file__).parents[3]

DEVICES = (
    "CUDA0: A GPU (24000 MiB, 23000 MiB free)",
    "CUDA1: A GPU (24000 MiB, 23000 MiB free)",
    "Vulkan0: llvmpipe (LLVM 15.0.6, 256 bits) (2048 MiB, 2048 MiB free)",
)


@pytest.fixture
def capabilities(llama_build: Build) -> Capabilities:
    return replace(llama_build.capabilities, devices=DEVICES)


@pytest.mark.parametrize(
    ("wanted", "flag"), [("cpu", CPU), ("cuda", "CUDA0"), ("vulkan", "Vulkan0"), (AUTO, None)]
)
def test_the_first_device_of_a_kind(
    capabilities: Capabilities, wanted: str, flag: str | None
) -> None:
    assert device_flag(wanted, capabilities, "llama-server") == flag


def test_what_there_is_is_listed(capabilities: Capabilities) -> None:
    with pytest.raises(UsageProblem, match="has no CUDA device here; it has: Vulkan0: llvmpipe"):
        device_flag("cuda", replace(capabilities, devices=DEVICES[2:]), "llama-server")
    with pytest.raises(UsageProblem, match=r"it has: none .*GGML_VK_VISIBLE_DEVICES=0"):
        device_flag("vulkan", replace(capabilities, devices=()), "llama-server")


REPORT = """\
0.00.035.094 I load_tensors: offloaded 7/7 layers to GPU
0.00.036.035 I llama_kv_cache:    Vulkan0 KV buffer size =     0.25 MiB
0.00.036.393 I llama_memory_recurrent:    Vulkan0 RS buffer size =     0.02 MiB
0.00.036.393 I sched_reserve:        CPU compute buffer size =    21.89 MiB
"""


def test_a_report_is_read() -> None:
    assert offload(REPORT) == Offload((7, 7), frozenset({"Vulkan0"}))
    assert offload("load_tensors: loading model tensors") == Offload((0, 0), frozenset())


@pytest.mark.parametrize(
    ("report", "missing"),
    [
        (REPORT, None),
        (REPORT.replace("7/7", "1/7"), "1 of 7 layers are on Vulkan0"),
        (
            REPORT.replace("Vulkan0 KV", "    CPU KV"),
            "KV or recurrent state is on CPU, not on Vulkan0",
        ),
        (REPORT.replace("buffer", ""), "no KV or recurrent state is on Vulkan0"),
        ("", "nothing is said of where its layers are"),
    ],
)
def test_what_is_not_where_it_was_to_be(report: str, missing: str | None) -> None:
    assert not_offloaded(offload(report), "Vulkan0") == missing


def suite(*options: str) -> subprocess.CompletedProcess[str]:
    """A scenario of the suite on Vulkan."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "--llama-memory=llama",
    ]
    command += ["--llama-device=vulkan", *options]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)


@pytest.fixture
def vulkan(real_server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build with Vulkan and a device, which may be a CPU that passes for a GPU."""
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", os.environ.get("GGML_VK_VISIBLE_DEVICES", "0"))
    devices = probe(real_server).devices
    if not any(device.startswith("Vulkan") for device in devices):
        pytest.skip("needs a Vulkan device: mesa-vulkan-drivers has one that is a CPU")


@pytest.mark.usefixtures("vulkan")
@pytest.mark.timeout(300)
def test_scenarios_hold_on_a_gpu(real_server: Path) -> None:
    """Within a tolerance that was measured there."""
    identical = "tests/cache/test_accounting.py::test_identical_request[llama-np1-kvu-completion]"
    done = suite(f"--llama-bin={real_server}", identical)
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    assert ": 1 holds\n" in done.stdout
    assert "400/1" in done.stdout
    assert re.search(r"answers on \w+: 2 judged, .* control: noise \d", done.stdout)


@pytest.mark.usefixtures("vulkan")
@pytest.mark.timeout(300)
def test_a_server_that_is_elsewhere_is_an_error(real_server: Path) -> None:
    identical = "tests/cache/test_accounting.py::test_identical_request[llama-np1-kvu-completion]"
    done = suite(f"--llama-bin={real_server}", identical, "--llama-arg=--no-kv-offload")
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout + done.stderr
    assert "by the server's log KV or recurrent state is on CPU, not on Vulkan0" in done.stdout


def test_a_device_that_is_not_there_is_a_usage_error(real_server: Path, llama_build: Build) -> None:
    if any(device.startswith("CUDA") for device in llama_build.capabilities.devices):
        pytest.skip("there is one")
    done = suite(f"--llama-bin={real_server}", "--llama-device=cuda", "-k", "identical")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "has no CUDA device here; it has: " in done.stderr
    assert done.stderr.count("\n") <= 2


def test_two_words_on_the_device_are_one_too_many(real_server: Path) -> None:
    done = suite(f"--llama-bin={real_server}", "--llama-device=cpu", "--llama-arg=--device none")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--llama-arg and --llama-device both say which device" in done.stderr
