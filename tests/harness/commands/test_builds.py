"""`llama-harness get`, `builds` and `pins`, and refs given to the others, from a small upstream."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import pins
from harness.builds.store import home
from harness.cli import main
from harness.commands.output import EXIT_FAILED, EXIT_NOT_OBTAINED, EXIT_USAGE
from tests.harness.builds.fake_upstream import BROKEN, NO_PROMPT_CACHE, RIGHT, FakeUpstream

PINNED = "test_pinned_slot_looks_in_the_prompt_cache and llama-np1-kvu-completion"


def test_get_prints_a_path_and_nothing_else(
    only_upstream: FakeUpstream, capfd: pytest.CaptureFixture[str]
) -> None:
    name = only_upstream.commit()
    assert main(["get", "master"]) == 0
    out, err = capfd.readouterr()
    path = Path(out.removesuffix("\n"))
    assert path.is_file()
    assert path.is_relative_to(home())
    assert "compiling llama-server" in err
    assert main(["get", name[:8]]) == 0
    assert capfd.readouterr() == (out, "")
    assert main(["get", name[:8], "--format=json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["ref"], found["build"]["commit"]) == (name[:8], name)
    assert found["build"]["path"] == str(path)
    assert main(["get", str(path), "--format=json"]) == 0
    assert json.loads(capfd.readouterr().out)["build"] == {"path": str(path)}


@pytest.mark.parametrize(
    ("ref", "code", "said"),
    [
        ("nonsense", EXIT_USAGE, "a ref is "),
        ("PR30275", EXIT_USAGE, "did you mean PR#30275?"),
        ("master~9", EXIT_USAGE, "before the beginning"),
        ("master", EXIT_NOT_OBTAINED, "does not build: "),
        ("PR#9", EXIT_NOT_OBTAINED, "has no pull request 9"),
    ],
)
def test_what_cannot_be_had_is_one_line(
    only_upstream: FakeUpstream, capfd: pytest.CaptureFixture[str], ref: str, code: int, said: str
) -> None:
    only_upstream.commit(BROKEN)
    assert main(["get", ref]) == code
    out, err = capfd.readouterr()
    assert out == ""
    last = err.splitlines()[-1]
    assert last.startswith("llama-harness: ")
    assert said in last
    assert "Traceback" not in err


def test_builds_are_listed_and_pruned(
    only_upstream: FakeUpstream, capfd: pytest.CaptureFixture[str]
) -> None:
    name = only_upstream.commit()
    assert main(["get", "master"]) == 0
    capfd.readouterr()
    assert main(["builds", "list"]) == 0
    assert f"{name[:12]}  cpu       source" in capfd.readouterr().out
    assert main(["builds", "list", "--format=json"]) == 0
    (build,) = json.loads(capfd.readouterr().out)["builds"]
    assert build["commit"] == name
    assert build["rung"] == "source"
    assert build["compiler"]
    assert main(["builds", "list", "--format=markdown"]) == 0
    assert f"| b1 | {name[:12]} | cpu | source |" in capfd.readouterr().out
    # This process holds it; another one may remove what nobody holds.
    assert main(["builds", "prune", "--size=0"]) == 0
    assert "removed: 0, " in capfd.readouterr().out


def test_prune_removes_what_nobody_uses(only_upstream: FakeUpstream) -> None:
    only_upstream.commit()
    harness = [sys.executable, "-m", "harness"]
    for words in (["get", "master"], ["builds", "prune", "--size=0"]):
        done = subprocess.run([*harness, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].startswith("removed: 1, 0.00 GiB")
    done = subprocess.run(
        [*harness, "builds", "prune", "--size=much"], capture_output=True, text=True
    )
    assert done.returncode == EXIT_USAGE
    assert "'much' is no number of GiB" in done.stderr


def test_compare_shows_the_commit_that_broke_it(
    only_upstream: FakeUpstream, capfd: pytest.CaptureFixture[str]
) -> None:
    only_upstream.commit(RIGHT)
    only_upstream.commit(NO_PROMPT_CACHE)
    assert main(["compare", "master~1", "b2", "-k", PINNED]) == EXIT_FAILED
    out = capfd.readouterr().out
    assert "750/1 -> 1/750" in out
    assert "broken: 1" in out
    assert main(["compare", "b2", "b1", "-k", PINNED]) == 0
    assert "fixed: 1" in capfd.readouterr().out


def test_check_of_a_pull_request(
    only_upstream: FakeUpstream, capfd: pytest.CaptureFixture[str]
) -> None:
    only_upstream.commit(RIGHT)
    only_upstream.pull_request(7, NO_PROMPT_CACHE)
    assert main(["check", "PR#7", "-k", PINNED]) == EXIT_FAILED
    assert "FAILS" in capfd.readouterr().out
    assert main(["check", "master", "-k", PINNED]) == 0
    assert "HOLDS" in capfd.readouterr().out


PINS = """\
[[pin]]
name = "right"
ref = "b1"
what = "does all right"
said_by = "nobody"
[[pin]]
name = "wrong"
ref = "b2"
what = "has no prompt cache"
said_by = "nobody"
[[pin]]
name = "gone"
ref = "PR#9"
what = "was never there"
said_by = "nobody"
[[expect]]
pins = ["right", "wrong", "gone"]
scenario = "test_slot_choice.py::test_pinned_slot_looks_in_the_prompt_cache"
configuration = "np1-kvu-completion"
model = "llama"
fails = []
steps = { "P again" = { cache_n = 750 } }
"""


@pytest.mark.parametrize(
    ("names", "model", "code", "standings"),
    [
        (["right"], None, 0, ["agreed"]),
        (["right"], "gemma3", 0, ["agreed"]),  # which reuses another number
        (["right", "wrong"], None, EXIT_FAILED, ["agreed", "newly failing"]),
        (["right", "gone"], None, EXIT_NOT_OBTAINED, ["agreed", "could not be obtained"]),
    ],
)
def test_pins_check(
    only_upstream: FakeUpstream,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    model: str | None,
    code: int,
    standings: list[str],
) -> None:
    only_upstream.commit(RIGHT)
    only_upstream.commit(NO_PROMPT_CACHE)
    file = tmp_path / "pins.toml"
    file.write_text(PINS)
    read = pins.load(file)
    monkeypatch.setattr("harness.pins.load", lambda: read)
    options = [f"--model={model}"] if model else []
    assert main(["pins", "check", *names, *options, "--format=json"]) == code
    findings = json.loads(capfd.readouterr().out)["findings"]
    assert sorted(finding["standing"] for finding in findings) == standings


def test_pins_list(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["pins", "list"]) == 0
    out = capfd.readouterr().out
    assert "060b2fe" in out
    assert "holds (glass + tail: 181/-)" in out
    assert main(["pins", "check", "nonesuch"]) == EXIT_USAGE
    assert "no pin nonesuch" in capfd.readouterr().err
