"""Builds: what a binary is, and how it is told from others."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.builds.build import Build, examine
from harness.builds.origin import Origin
from harness.errors import UsageProblem


def test_the_real_server(llama_build: Build) -> None:
    (build,) = examine([llama_build.origin])
    assert build == llama_build
    assert len(build.sha256) == 64


def test_a_build_survives_being_handed_over(llama_build: Build) -> None:
    assert Build.from_json(json.loads(json.dumps(llama_build.to_json()))) == llama_build


def test_the_same_binary_twice_has_two_ids(llama_build: Build) -> None:
    one, two, three = examine([llama_build.origin] * 3)
    assert len({one.id, two.id, three.id}) == 3
    assert "-" not in one.id + two.id  # the parts of a test's id are joined by it


def saying(version: str, real: Path, directory: Path) -> Origin:
    """A binary that is the real server, and says this version."""
    directory.mkdir(parents=True)
    binary = directory / "llama-server"
    answer = f"[ $1 = --version ] && echo 'version: {version}' || exec {real} $1"
    binary.write_text(f"#!/bin/sh\n{answer}\n")
    binary.chmod(0o755)
    return Origin(path=binary, said_by="test")


@pytest.mark.parametrize(
    ("version", "folder", "known", "title"),
    [
        ("9713 (c0ffee123)", "b9714", 9715, "b9713 (c0ffee123)"),
        ("1 (c0ffee123)", "b9714", 9715, "b9715 (c0ffee123)"),
        ("1 (c0ffee123)", "b9714", None, "b9714 (c0ffee123)"),
        ("1 (7e4c0a9)", "any", None, "b10434 (7e4c0a9)"),
        ("0 (unknown)", "llama-b9714-bin-ubuntu-x64", None, "b9714 (commit unknown)"),
        ("1 (c0ffee123)", "any", None, "build of unknown number (c0ffee123)"),
    ],
)
def test_the_number_is_the_binarys_own_or_else_that_of_its_place(
    llama_build: Build, tmp_path: Path, version: str, folder: str, known: int | None, title: str
) -> None:
    origin = saying(version, llama_build.origin.path, tmp_path / folder)
    (build,) = examine([replace(origin, number=known)])
    assert build.title == title
    number = title.partition(" ")[0]
    assert build.id == (number if number != "build" else "c0ffee123")
    assert build.facts()["number"] == build.number
    assert Build.from_json(json.loads(json.dumps(build.to_json()))).title == title


def test_a_build_of_no_known_commit_has_the_name_of_its_folder(
    llama_build: Build, tmp_path: Path
) -> None:
    one, two = examine(
        [
            saying("0 (unknown)", llama_build.origin.path, tmp_path / folder)
            for folder in ("my-fix/build/bin", "base/build/bin/Release")
        ]
    )
    assert (one.id, two.id) == ("my_fix", "base")
    assert one.libraries_sha256 is None


def test_other_libraries_are_another_build(llama_build: Build, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    shutil.copytree(llama_build.origin.path.resolve().parent, folder, symlinks=True)
    same = Origin(path=folder / llama_build.origin.path.name, said_by="test")
    (copied,) = examine([same])
    assert copied.libraries_sha256 == llama_build.libraries_sha256
    (folder / "libmore.so").write_bytes(b"more")
    (changed,) = examine([same])
    assert changed.sha256 == llama_build.sha256
    assert changed.libraries_sha256 != llama_build.libraries_sha256


def test_the_first_that_is_none_is_refused(llama_build: Build, tmp_path: Path) -> None:
    missing = Origin(path=tmp_path / "llama-server", said_by="--llama-bin")
    with pytest.raises(UsageProblem, match="does not exist"):
        examine([llama_build.origin, missing])
