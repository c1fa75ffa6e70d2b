"""A model by its name: fetched once a run from a hub on loopback, and judged like a real one.

What is served under the real names is a generated model; that it is one, nobody is told.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.builds.build import Build
from harness.models.published import PUBLISHED
from harness.models.synthetic.store import generated
from harness.prompts import FOX, GLASS
from tests.harness.fake_http import Answer, Asked, FakeServer
from tests.harness.fake_hub import FakeHub, sha256
from tests.harness.test_plugin import NP1, WORKERS, suite

NAME = "stories15m-moe"
FILES = {
    PUBLISHED[NAME].model: generated().file.path.read_bytes(),
    PUBLISHED[NAME].lora: generated().adapters["A"].path.read_bytes(),
}
OTHER_BYTES = """
from dataclasses import replace
from harness.models.published import PUBLISHED, Published

def served(file, sha256, size):
    return replace(file, sha256=sha256, size=size)

real = PUBLISHED["stories15m-moe"]
PUBLISHED["stories15m-moe"] = Published(served(real.model, *{model}), served(real.lora, *{lora}))
"""
"""A plugin for pytest: the names as they are, for other bytes."""


def hub() -> FakeServer:
    """A hub that has both files."""
    hubs = {
        file.name: FakeHub(body, file.repo, file.revision, file.name)
        for file, body in FILES.items()
    }

    def answer(asked: Asked) -> Answer:
        name = asked.path.rpartition("/")[2]
        return hubs[name](asked) if name in hubs else Answer(status=404)

    return FakeServer(answer)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An empty cache, and a plugin that lets other bytes go under the real names."""
    model, lora = ((sha256(body), len(body)) for body in FILES.values())
    (tmp_path / "other_bytes.py").write_text(OTHER_BYTES.format(model=model, lora=lora))
    return {"PYTHONPATH": str(tmp_path), "HF_HOME": str(tmp_path / "home")}


def run(
    endpoint: str, environ: Mapping[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    return suite(
        *("-p", "other_bytes", f"--llama-model={NAME}", *options),
        environ={**environ, "HF_ENDPOINT": endpoint},
    )


@WORKERS
def test_the_articles_test_to_its_verdict(
    environ: dict[str, str], llama_build: Build, workers: tuple[str, ...]
) -> None:
    """Its own prompts, judged by the server's token counts and by cold runs; fetched once."""
    if not llama_build.origin.provided:
        pytest.skip("what is wrong with other builds is not known here")
    with hub() as server:
        done = run(server.url, environ, "-v", "-k", f"article and {NP1}", *workers)
        assert done.returncode == 1, done.stdout  # known bugs are those of the generated model
        assert [asked.method for asked in server.asked].count("GET") == len(FILES)
        glass, fox = len(GLASS.text) + 1, len(FOX.text) + 1
        reuse = f"0/{glass} 1/{fox - 1} 0/{glass + len('And then')}"
        assert re.search(rf"test_article +{reuse} +failed +glass \+ tail: lost_reuse", done.stdout)
        judged = (
            r"^answers on \w+: 2 judged, .* allowed; control: noise .*, other adapters or text "
        )
        assert re.search(judged, done.stdout, re.MULTILINE)
        assert f"model: {NAME} (dense), adapters: A moe_shakespeare15M.gguf, B random.gguf, " in (
            done.stdout
        )
        again = run(server.url, environ, "-k", f"article and {NP1}", "--co", "-q")
        assert again.returncode == 0
        assert [asked.method for asked in server.asked].count("GET") == len(FILES)


def test_scenarios_of_two_adapters_run_too(environ: dict[str, str]) -> None:
    """With the random one; and what holds on every build holds here."""
    with hub() as server:
        done = run(server.url, environ, "-k", f"test_other_adapter_in_the_same_slot and {NP1}")
    assert done.returncode == 0, done.stdout
    assert ": 1 holds\n" in done.stdout


def test_without_a_hub_there_is_one_line(tmp_path: Path, dead: str) -> None:
    environ = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": dead}
    done = suite(f"--llama-model={NAME}", environ=environ)
    assert done.returncode == 4
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    for words in ("stories15M_MOE-F16.gguf", dead, "--llama-model=generated"):
        assert words in line


def test_its_adapters_are_its_own() -> None:
    done = suite(f"--llama-model={NAME}", "--llama-lora=x.gguf")
    assert done.returncode == 4
    assert "--llama-lora needs --llama-model=PATH" in done.stderr


def test_a_name_that_is_none_is_told_the_names() -> None:
    done = suite("--llama-model=stories")
    assert done.returncode == 4
    assert f"no such file (names are: generated, {', '.join(PUBLISHED)})" in done.stderr


def test_progress_is_seen_though_pytest_captures(environ: dict[str, str]) -> None:
    with hub() as server:
        done = run(server.url, environ, "--co", "-q", "-k", "no-such-test")
    assert f"fetching {PUBLISHED[NAME].model} from {server.url}" in done.stderr
