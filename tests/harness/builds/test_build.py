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


def test_an_origin_knows_the_number_better_than_the_binary(llama_build: Build) -> None:
    origin = replace(llama_build.origin, number=12345)
    (build,) = examine([origin])
    assert (build.number, build.id) == (12345, "b12345")
    assert build.title.startswith("b12345 (")


def test_a_build_of_no_known_commit_has_the_name_of_its_folder(
    llama_build: Build, tmp_path: Path
) -> None:
    names = []
    for folder in ("my-fix/build/bin", "base/build/bin/Release"):
        (tmp_path / folder).mkdir(parents=True)
        binary = tmp_path / folder / "llama-server"
        real = llama_build.origin.path
        binary.write_text(
            f"#!/bin/sh\n[ $1 = --version ] && echo 'version: 0 (unknown)' || exec {real} $1\n"
        )
        binary.chmod(0o755)
        names.append(Origin(path=binary, said_by="test"))
    one, two = examine(names)
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
