from __future__ import annotations

from pathlib import Path

import pytest

from harness.builds.ref import (
    CommitRef,
    MasterRef,
    NumberRef,
    PathRef,
    PullRef,
    Ref,
    SdistRef,
    WheelRef,
    parse,
)
from harness.errors import UsageProblem

SHA = "7e4c0a9" + "0" * 33

FORMS: list[tuple[str, Ref]] = [
    ("b11434", NumberRef(11434)),
    ("7e4c0a9", CommitRef("7e4c0a9")),
    (SHA, CommitRef(SHA)),
    ("b1234567", CommitRef("b1234567")),  # more digits than a build number has
    ("PR#30275", PullRef(30275)),
    ("pull/30275/head", PullRef(30275)),
    ("PR#30275@4e94dc5", PullRef(30275, "4e94dc5")),
    ("pull/30275/head@4e94dc5", PullRef(30275, "4e94dc5")),
    ("master", MasterRef()),
    ("master~50", MasterRef(50)),
    ("wheel:0.10434.0", WheelRef("0.10434.0")),
    ("sdist:b11434", SdistRef(11434)),
    ("/opt/llama-server", PathRef(Path("/opt/llama-server"))),
    ("build/bin/llama-server", PathRef(Path("build/bin/llama-server").absolute())),
    ("./b11434", PathRef(Path("b11434").absolute())),
    ("./master", PathRef(Path("master").absolute())),
    ("bin/master", PathRef(Path("bin/master").absolute())),
]

SLIPS = [
    ("11434", "b11434"),
    ("B11434", "b11434"),
    ("build 11434", "b11434"),
    ("PR30275", "PR#30275"),
    ("pr#30275", "PR#30275"),
    ("#30275", "PR#30275"),
    ("pull/30275", "PR#30275"),
    ("refs/pull/30275/head", "PR#30275"),
    ("https://github.com/ggml-org/llama.cpp/pull/30275/files", "PR#30275"),
    ("https://github.com/ggml-org/llama.cpp/commit/7e4c0a9", "7e4c0a9"),
    ("https://github.com/ggml-org/llama.cpp/releases/tag/b11434", "b11434"),
    ("7E4C0A9", "7e4c0a9"),
    ("main", "master"),
    ("HEAD", "master"),
    ("origin/master", "master"),
    ("main~3", "master~3"),
    ("master^3", "master~3"),
    ("wheel:10434", "wheel:0.10434.0"),
    ("wheel:b10434", "wheel:0.10434.0"),
    ("sdist:11434", "sdist:b11434"),
    ("sdist:11434.0.0", "sdist:b11434"),
    ("mastr", "master"),
]


@pytest.mark.parametrize(("text", "ref"), FORMS, ids=[text for text, _ in FORMS])
def test_form(text: str, ref: Ref) -> None:
    assert parse(text) == ref


@pytest.mark.parametrize(("text", "ref"), FORMS[:-5], ids=[text for text, _ in FORMS[:-5]])
def test_written_again_it_is_the_same(text: str, ref: Ref) -> None:
    assert parse(str(ref)) == ref


@pytest.mark.parametrize(("text", "meant"), SLIPS, ids=[text for text, _ in SLIPS])
def test_slip_gets_what_was_meant(text: str, meant: str) -> None:
    with pytest.raises(UsageProblem) as problem:
        parse(text)
    assert f"did you mean {meant}?" in problem.value.hint
    parse(meant)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "7e4c0",
        "wheel:",
        "wheel:0.10434.1",
        "x" * 5000,
        "a\0b",
        "master~",
        "PR#",
        "b",
        "a b",
    ],
)
def test_nonsense_gets_the_grammar(text: str) -> None:
    with pytest.raises(UsageProblem, match="names no build") as problem:
        parse(text)
    for form in ("b11434", "PR#30275", "master~50", "wheel:0.10434.0", "sdist:b11434"):
        assert form in problem.value.hint


def test_path_that_looks_like_a_slip_is_one_where_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageProblem, match="names no build"):
        parse("pull/12")
    (tmp_path / "pull").mkdir()
    (tmp_path / "pull" / "12").touch()
    assert parse("pull/12") == PathRef(tmp_path / "pull" / "12")


def test_file_right_here_needs_a_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llama-server").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageProblem) as problem:
        parse("llama-server")
    assert "did you mean ./llama-server?" in problem.value.hint
