"""`llama-harness pins check`, where a build cannot be run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NoReturn

import pytest

from harness.cli import main
from harness.commands import pins_check
from harness.commands.output import EXIT_FAILED, EXIT_NO_VERDICT, EXIT_NOT_OBTAINED
from harness.commands.pins_check import outcome
from harness.errors import DoesNotRun, HarnessError, NotObtained
from harness.pins import Standing


def raising(error: HarnessError) -> Callable[..., NoReturn]:
    def obtain(*_: object) -> NoReturn:
        raise error

    return obtain


@pytest.mark.parametrize(
    ("error", "standing"),
    [
        (DoesNotRun("b1 needs AVX-512"), "does not run here"),
        (NotObtained("b1 needs AVX-512"), "could not be obtained"),
    ],
)
def test_a_build_that_does_not_run_has_a_standing_of_its_own(
    error: HarnessError,
    standing: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pins_check, "obtain", raising(error))
    assert main(["pins", "check", "b10434"]) == EXIT_NOT_OBTAINED
    out = capsys.readouterr().out.splitlines()
    assert out[-2:] == ["b10434: b1 needs AVX-512", f"{standing}: 1"]
    assert main(["pins", "check", "b10434", "--format=json"]) == EXIT_NOT_OBTAINED
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["standing"], finding["found"]) == (standing, "b1 needs AVX-512")


def test_the_exit_code_is_that_of_the_worst() -> None:
    assert outcome({Standing.AGREED, Standing.NEWLY_FIXED}) == 0
    assert outcome({Standing.NO_VERDICT, Standing.AGREED}) == EXIT_NO_VERDICT
    assert outcome({Standing.NO_VERDICT, Standing.DOES_NOT_RUN}) == EXIT_NOT_OBTAINED
    assert outcome({Standing.DIFFERS, Standing.DOES_NOT_RUN}) == EXIT_FAILED
