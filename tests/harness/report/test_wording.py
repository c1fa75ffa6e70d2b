"""How things are put into words."""

from __future__ import annotations

import pytest

from harness.report.wording import item_name, link, ref_without_path, shown, titled, without_paths


def test_the_kinds_of_a_step_stand_together() -> None:
    signature = ("P: wrong_answer", "P: wrong_reuse", "Q: crash")
    assert shown(signature) == "P: wrong_answer + wrong_reuse; Q: crash"


def test_a_link_where_there_is_an_issue() -> None:
    assert link("#30275").endswith("/issues/30275")
    assert link("unreported: window lost") == ""


@pytest.mark.parametrize(
    ("name", "commit", "title"),
    [("b1", "7e4c0a9", "b1 (7e4c0a9)"), ("7e4c0a9", "7e4c0a9", "7e4c0a9"), ("mine", None, "mine")],
)
def test_a_build(name: str, commit: str | None, title: str) -> None:
    assert titled({"id": name, "commit": commit}) == title


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at /home/me/b/llama-server, or ~/chat.gguf", "at llama-server, or chat.gguf"),
        ("--file=/x/y", "--file=y"),
        ("0/751 -> 682/69 -/- on /completion", "0/751 -> 682/69 -/- on /completion"),
        ("POST /v1/chat/completions", "POST /v1/chat/completions"),
        ("https://github.com/a/b/issues/1", "https://github.com/a/b/issues/1"),
    ],
)
def test_paths_of_this_machine_are_left_out(text: str, shown: str) -> None:
    assert without_paths(text) == shown


def test_refs_are_kept_and_paths_are_not() -> None:
    refs = ("b11434", "PR#30275", "pull/30275/head", "./x", "~/x", "/x/y", "build/bin/llama-server")
    kept = ("b11434", "PR#30275", "pull/30275/head", *["PATH"] * 4)
    assert tuple(map(ref_without_path, refs)) == kept


def test_the_name_of_a_test() -> None:
    assert item_name("test_lora.py::test_x", "llama", "np1-kvu") == "test_x[llama-np1-kvu]"
    assert item_name("test_lora.py::test_x", "chat.gguf", "np1-kvu") == "test_x[np1-kvu]"
    assert item_name("test_lora.py::test_x", "chat.gguf", "") == "test_x"
