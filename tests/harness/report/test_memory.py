"""The page of what each memory kind reused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.errors import UsageProblem
from harness.ledger import RequestRow, Run, VerdictRow
from harness.report.memory import page
from tests.harness.test_ledger import VERDICT

FACTS: dict[str, Any] = {
    "models": [
        {"name": "llama", "memory": "dense", "sha256": "1"},
        {"name": "qwen3", "memory": "dense", "sha256": "2"},
        {"name": "gemma3", "memory": "swa", "sha256": "3"},
    ],
    "builds": [{"id": "b1"}],
    "server_args": [],
    "device": "auto",
}

P = RequestRow(step="P", route="completion", prompt_tokens=9, expected=(0, 0), cache_n=0)
AGAIN = replace(P, step="P again", possible=8, expected=(8, 8), cache_n=8)
LOST = replace(AGAIN, cache_n=0, failures=(("lost_reuse", "8 tokens"),))
WRONG = replace(AGAIN, failures=(("wrong_answer", "x"), ("wrong_reuse", "y")))


def verdict(
    model: str, *requests: RequestRow, build: str = "b1", where: str = "np1-kvu-completion-x"
) -> VerdictRow:
    return replace(VERDICT, model=model, build=build, configuration=where, requests=requests)


def lines(*verdicts: VerdictRow) -> list[str]:
    text = page([Run(FACTS, verdicts)])
    return [line for line in text.splitlines() if line.startswith("|")]


def test_models_of_a_kind_share_a_cell_where_they_agree() -> None:
    rows = [verdict(model, P, AGAIN) for model in ("llama", "qwen3", "gemma3")]
    assert lines(*rows) == [
        "| scenario | step | dense | swa |",
        "|---|---|---|---|",
        "| x [x] | P again | 8/8 | 8/8 |",
    ]


def test_models_and_builds_that_differ_are_named() -> None:
    rows = [
        verdict("llama", P, AGAIN),
        verdict("qwen3", P, LOST),
        verdict("gemma3", P, AGAIN),
        verdict("llama", P, AGAIN, build="b2"),
        verdict("qwen3", P, AGAIN, build="b2"),
        verdict("gemma3", P, WRONG, build="b2"),
    ]
    (row,) = lines(*rows)[2:]
    assert row == (
        "| x [x] | P again | 8/8 (llama, qwen3 on b2); 0/8 **lost** (qwen3 on b1) "
        "| 8/8 (gemma3 on b1); 8/8 **wrong** **stale** (gemma3 on b2) |"
    )


def test_builds_and_models_that_did_not_come_so_far_are_named() -> None:
    rows = [verdict("llama", P, AGAIN), verdict("qwen3", P, AGAIN)]
    rows.append(verdict("llama", P, build="b2"))
    (row,) = lines(*rows)[2:]
    assert row == "| x [x] | P again | 8/8 (llama on b1, qwen3 on b1); - (llama on b2) | - |"


def test_of_each_scenario_the_simplest_configuration_is_shown() -> None:
    wheres = ("np4-nokvu-completion-x", "np1-kvu-chat-x", "np1-kvu-completion-x")
    rows = [verdict("llama", P, LOST, where=where) for where in wheres[:2]]
    rows.append(verdict("llama", P, AGAIN, where=wheres[2]))
    assert lines(*rows)[2:] == ["| x [x] | P again | 8/8 | - |"]
    assert lines(*rows[:1])[2:] == ["| x [x] | P again | 0/8 **lost** | - |"]


def test_a_step_that_is_no_request_is_told_where_it_failed() -> None:
    restore = RequestRow(step="restore", route="restore", failures=(("crash", "it died"),))
    fine = replace(restore, step="save", failures=())
    assert lines(verdict("llama", fine, restore))[2:] == ["| x [x] | restore | **crash** | - |"]


def test_the_head_says_what_was_run() -> None:
    text = page([Run(FACTS, (verdict("llama", AGAIN),)), Run(FACTS, ())])
    assert "from the ledgers of 2 runs" in text
    assert "Models: dense (llama, qwen3), swa (gemma3). Builds: b1." in text


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"server_args": ["-fa", "on"]}, "different arguments on b1"),
        ({"device": "vulkan"}, "different arguments on b1"),
        ({"models": [{**FACTS["models"][0], "sha256": "9"}]}, "different models called llama"),
        ({"models": [{"name": "model.gguf", "memory": "swa"}]}, "is no generated model"),
    ],
    ids=["arguments", "device", "models", "own_model"],
)
def test_runs_that_do_not_belong_on_one_page(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageProblem, match=words):
        page([Run(FACTS, ()), Run({**FACTS, **changed}, ())])
