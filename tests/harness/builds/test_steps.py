"""How steps are told: rewritten on a terminal, sparsely elsewhere."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import pytest

from harness.builds.steps import Steps


class Terminal(io.StringIO):
    """A terminal that is written to."""

    def isatty(self) -> bool:
        return True


@dataclass
class Told:
    """Steps whose time is set by the test."""

    out: io.StringIO = field(default_factory=io.StringIO)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.steps = Steps("b1", self.out, clock=lambda: self.now)

    def after(self, seconds: float, text: str = "") -> str:
        """What is told when a program has written this, so much later."""
        self.now += seconds
        before = len(self.out.getvalue())
        self.steps.watch(text)
        return self.out.getvalue()[before:]


def test_beginning_and_end() -> None:
    told = Told()
    with told.steps.step("compiling", log="/log"):
        told.now += 12.34
    told.steps.say("done")
    assert told.out.getvalue() == "b1: compiling (log: /log)\nb1: compiling: 12.3 s\nb1: done\n"


def test_redirected_a_line_is_due_with_time_and_ten_percent() -> None:
    told = Told()
    with told.steps.step("compiling"):
        assert told.after(29, "[50/100] x\n") == ""
        assert told.after(1, "[51/100] x\n") == "b1: compiling: 51 %, 0.5 min\n"
        assert told.after(60, "[60/100] x\n") == ""
        assert told.after(1, "[61/100] x\n") == "b1: compiling: 61 %, 1.5 min\n"
        assert told.after(29, "[99/100] x\n") == ""


def test_redirected_a_program_that_is_silent_is_told_of() -> None:
    told = Told()
    with told.steps.step("checking out"):
        assert told.after(29) == ""
        assert told.after(1) == "b1: checking out: 0.5 min\n"
        assert told.after(29) == ""
        assert told.after(1) == "b1: checking out: 1.0 min\n"


def test_redirected_a_percentage_that_stands_still_is_told_again() -> None:
    told = Told()
    with told.steps.step("compiling"):
        told.after(30, "[ 45%] x\n")
        assert told.after(119) == ""
        assert told.after(1) == "b1: compiling: 45 %, 2.5 min\n"


def test_an_hour_is_told_in_few_lines() -> None:
    told = Told()
    with told.steps.step("compiling"):
        for done in range(3600):
            told.after(1, f"[{done}/3600] x\n")
    assert 10 <= len(told.out.getvalue().splitlines()) <= 40


@pytest.mark.parametrize(
    ("total", "said"), [(400_000_000, "25 %, 1.0 min"), (None, "100.0 MB, 1.0 min")]
)
def test_download(total: int | None, said: str) -> None:
    told = Told()
    with told.steps.step("download x"):
        told.now += 60
        told.steps.progress(100_000_000, total)
        told.steps.progress(200_000_000, total)
    assert told.out.getvalue().splitlines()[1:-1] == [f"b1: download x: {said}"]


def test_terminal_has_one_line_that_is_rewritten() -> None:
    told = Told(Terminal())
    with told.steps.step("compiling"):
        assert told.after(0.1, "[ 1%] x\n") == ""
        assert told.after(0.2) == "\rb1: 1 %, 0.0 min\x1b[K"
        assert told.after(0.2, "[ 2%] x\n") == ""
        assert told.after(60) == "\rb1: 2 %, 1.0 min\x1b[K"
    assert told.out.getvalue().endswith("\r\x1b[Kb1: compiling: 60.5 s\n")
    told.steps.say("done")
    assert told.out.getvalue().endswith("s\nb1: done\n")


def test_line_in_between_does_not_follow_the_one_that_is_rewritten() -> None:
    told = Told(Terminal())
    with told.steps.step("download x"):
        told.after(1)
        told.steps.say("asking again")
    assert "\r\x1b[Kb1: asking again\n" in told.out.getvalue()


def test_each_step_begins_anew() -> None:
    told = Told()
    with told.steps.step("one"):
        told.after(60, "[ 90%] x\n")
    assert told.after(60) == ""  # no step
    with told.steps.step("two"):
        assert told.after(30) == "b1: two: 0.5 min\n"


def test_nobody_is_told() -> None:
    steps = Steps("b1", None)
    with steps.step("one"):
        steps.watch("[ 1%] x\n")
        steps.progress(1, 2)
        steps.say("x")
