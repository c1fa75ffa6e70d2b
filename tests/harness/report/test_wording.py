"""How things are put into words."""

from __future__ import annotations

import pytest

from harness.report.wording import link, shown, titled


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
