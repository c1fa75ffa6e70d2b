"""Pins: what is expected of builds, and how what they do compares."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from harness.errors import UsageProblem
from harness.ledger import RequestRow, Verdict, VerdictRow
from harness.pins import Expectation, Numbers, Pin, Standing, finding, load
from tests.harness.fronts.trial import ROOT, collected

PIN = Pin(name="one", ref="b1", what="a build", said_by="nobody")


def expectation(*fails: str, **steps: Numbers) -> Expectation:
    return Expectation(
        pins=("one",),
        scenario="test_lora.py::test_article",
        configuration="np1-kvu-completion",
        model="llama",
        fails=fails,
        steps=steps,
    )


def row(
    *signature: str, verdict: Verdict | None = None, cache_n: int = 0, reason: str | None = None
) -> VerdictRow:
    return VerdictRow(
        scenario="test_lora.py::test_article",
        configuration="np1-kvu-completion",
        model="llama",
        build="b1",
        verdict=verdict or (Verdict.FAILED if signature else Verdict.HOLDS),
        signature=signature,
        issue=None,
        bug=None,
        reason=reason,
        argv=(),
        seconds=0.0,
        requests=(RequestRow(step="P", route="completion", cache_n=cache_n, prompt_n=12),),
    )


@pytest.mark.parametrize(
    ("expected", "found", "standing"),
    [
        (expectation(), row(), Standing.AGREED),
        (expectation("P: crash"), row("P: crash"), Standing.AGREED),
        (expectation(), row("P: crash"), Standing.NEWLY_FAILING),
        (expectation("P: crash"), row("P: hang"), Standing.NEWLY_FAILING),
        (expectation("P: crash"), row("P: crash", "Q: crash"), Standing.NEWLY_FAILING),
        (expectation("P: crash"), row(), Standing.NEWLY_FIXED),
        (expectation("P: crash", "Q: crash"), row("P: crash"), Standing.NEWLY_FIXED),
        (expectation(P=Numbers(cache_n=5)), row(cache_n=5), Standing.AGREED),
        (expectation(P=Numbers(cache_n=5)), row(cache_n=4), Standing.DIFFERS),
        (expectation(P=Numbers(prompt_n=12)), row(cache_n=4), Standing.AGREED),
        (expectation(P=Numbers(prompt_n=13)), row(), Standing.DIFFERS),
        (expectation(Q=Numbers(prompt_n=13)), row(), Standing.DIFFERS),
        (expectation(), row(verdict=Verdict.NOT_TESTED, reason="why"), Standing.NO_VERDICT),
        (expectation(), row(verdict=Verdict.ERROR), Standing.NO_VERDICT),
        (expectation(), None, Standing.NO_VERDICT),
    ],
)
def test_standing(expected: Expectation, found: VerdictRow | None, standing: Standing) -> None:
    assert finding(PIN, expected, found, build="b1", model="llama").standing is standing


def test_with_another_model_the_verdict_alone_is_compared() -> None:
    expected = expectation(P=Numbers(cache_n=5))
    other = finding(PIN, expected, row(cache_n=4), build="b1", model="gemma3")
    assert other.standing is Standing.AGREED


def test_what_was_found_is_told() -> None:
    found = finding(PIN, expectation(P=Numbers(cache_n=5)), row(cache_n=4), build="", model="llama")
    assert found.found == "P: 4/12"
    skipped = row(verdict=Verdict.NOT_TESTED, reason="no such flag")
    assert "no such flag" in finding(PIN, expectation(), skipped, build="", model="").found


def test_the_projects_own() -> None:
    pins = load()
    refs = {pin.name: pin.ref for pin in pins.pin}
    assert refs["article"] == "060b2fe"
    assert refs["baseline"] == "1623d8c"
    assert refs["pr30275"] == "PR#30275@4e94dc5"
    assert refs["pr28992"] == "PR#28992"
    # By number, not by wheel: what a wheel was not compiled for is taken from elsewhere.
    assert [ref for ref in refs.values() if ref.startswith("b")] == ["b10068", "b10092", "b10434"]
    (article,) = pins.of(pins.named(["article"])[0])
    assert article.model == "stories15m-moe"
    assert article.steps == {"glass + tail": Numbers(cache_n=0, prompt_n=183)}


def test_each_is_expected_of_a_scenario_there_is() -> None:
    """By the ids that pytest gives them here."""
    ids = collected(ROOT / "tests" / "cache")
    for one in load().expect:
        file, function = one.scenario.split("::")
        prefix = f"tests/cache/{file}::{function}["
        generated = f"{prefix}llama-{one.configuration}]"
        assert generated in ids


ENTRY = """\
[[pin]]
name = "one"
ref = "b1"
what = "a build"
said_by = "nobody"
[[expect]]
pins = ["one"]
scenario = "test_lora.py::test_article"
configuration = "np1-kvu-completion"
model = "llama"
fails = []
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[[pin]]", "[[pins]]", "pins"),
        ('ref = "b1"', 'ref = "nonsense"', "names no build"),
        ('model = "llama"', 'model = "lama"', "no such model: lama"),
        ("fails = []", 'fails = ["P: crush"]', "not `step: kind`: P: crush"),
        ("fails = []", "fails = []\nfail = []", "fail"),
        ('pins = ["one"]', 'pins = ["one", "two"]', "two"),
        ('name = "one"', 'name = "three"', "one, three"),
        ("[[expect]]", "[expect]", "expect"),
        (ENTRY, ENTRY + ENTRY, "two pins one"),
        (ENTRY, "[[", "not a list of pins"),
    ],
)
def test_file_that_is_wrong(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = tmp_path / "pins.toml"
    file.write_text(ENTRY)
    load(file)
    file.write_text(ENTRY.replace(old, new))
    with pytest.raises(UsageProblem, match=r"is not a list of pins") as problem:
        load(file)
    assert said in str(problem.value)


def test_chosen_by_name() -> None:
    pins = load()
    assert [pin.name for pin in pins.named(["b10434", "article"])] == ["b10434", "article"]
    assert pins.named([]) == pins.pin
    with pytest.raises(UsageProblem, match="no pin nonesuch") as problem:
        pins.named(["nonesuch"])
    assert "article" in problem.value.hint


def test_no_two_say_the_same_of_a_build() -> None:
    """What is expected of one scenario is said once."""
    for one, other in itertools.combinations(load().expect, 2):
        same = (one.scenario, one.configuration) == (other.scenario, other.configuration)
        assert not (same and set(one.pins) & set(other.pins))
