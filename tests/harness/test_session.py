"""What a run is about: prepared on the controller, handed to workers."""

from __future__ import annotations

import json

import pytest

from harness.builds.build import Build
from harness.errors import UsageProblem
from harness.models.synthetic.store import MODELS, generated
from harness.session import GENERATED, Session, prepare
from tests.harness.by_hand import ByHand


def prepared(build: Build, **changed: object) -> Session:
    asked: dict[str, object] = {
        "binaries": [str(build.origin.path)],
        "environ": {},
        "model": GENERATED,
        "memory": None,
        "loras": [],
        "args": [],
        "launcher": None,
    }
    return prepare(**{**asked, **changed})  # type: ignore[arg-type]  # all as they are in `asked`


def test_a_session_survives_being_handed_over(llama_build: Build) -> None:
    session = prepared(llama_build, args=["-fa on", "--no-perf"])
    assert session.extra_args == ("-fa", "on", "--no-perf")
    assert Session.from_json(json.loads(json.dumps(session.to_json()))) == session


def test_a_users_model(llama_build: Build) -> None:
    model = generated()
    a = str(model.adapters["A"].path)
    session = prepared(llama_build, model=str(model.file.path), loras=[a])
    assert [list(model.adapters) for model in session.models] == [["A"]]
    assert Session.from_json(json.loads(json.dumps(session.to_json()))) == session
    assert "answers judged by: cold runs" in "\n".join(session.header())


@pytest.mark.parametrize(
    ("memory", "names"),
    [
        ("dense", ["llama"]),
        ("swa,dense", ["llama", "gemma3"]),
        (" hybrid , lfm2", ["granitehybrid", "lfm2"]),
        ("gptoss,swa,gptoss", ["gemma3", "gptoss"]),
        ("all", list(MODELS)),
    ],
)
def test_models_by_how_they_remember(llama_build: Build, memory: str, names: list[str]) -> None:
    session = prepared(llama_build, memory=memory)
    assert [model.name for model in session.models] == names
    assert Session.from_json(json.loads(json.dumps(session.to_json()))) == session
    assert f"generated models: {names[0]} (" in "\n".join(session.header())


def test_a_server_that_is_attached_to(llama_build: Build, by_hand: ByHand) -> None:
    """Of the run's models the one that it serves; its words are those of a person."""
    model, binary = generated("gemma3"), str(llama_build.origin.path)
    small = ("-np", "2", "-c", "4096", "-sps", "0.5x")  # which it reads as 0.5
    url = by_hand(binary, "-m", str(model.file.path), "--port", "0", *small).url
    session = prepared(llama_build, binaries=[], url=url)
    assert [served.name for served in session.models] == ["gemma3"]
    assert session.extra_args == small
    assert session.builds[0].sha256 == llama_build.sha256
    assert not session.builds[0].origin.provided
    assert f"attached to: {url}, process " in "\n".join(session.header())
    assert session.facts([])["attached"]["url"] == url
    assert Session.from_json(json.loads(json.dumps(session.to_json()))) == session


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"loras": ["x.gguf"]}, "--llama-lora needs --llama-model"),
        ({"args": ["--no-such-flag"]}, "no flag --no-such-flag"),
        ({"args": ["-np", "-kvu"]}, "--llama-arg: -np needs a value"),
        ({"args": ["-ctk q9 -ctk f16"]}, "--llama-arg: -ctk q9 is not one of f32, f16, "),
        (
            {"args": ["-c 4096"]},
            "scenarios need 8192 tokens of context (leave it out",
        ),
        ({"args": ["'unclosed"]}, "--llama-arg cannot be read"),
        ({"args": ["--port 1"]}, "may not give --port"),
        ({"launcher": "no-such-program --args"}, "no such program"),
        ({"binaries": ["/bin/true"]}, "is not a llama-server"),
        ({"model": "nowhere.gguf"}, "no such file (names are: generated, stories15m-moe"),
        ({"model": "~nobody-here/x.gguf"}, "no such file"),
        ({"model": "stories15m-moe", "memory": "swa"}, "--llama-memory chooses among generated"),
        ({"memory": "sliding"}, "no kind of memory, and no model, called sliding"),
        ({"memory": ","}, "--llama-memory names nothing"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    llama_build: Build, changed: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageProblem) as problem:
        prepared(llama_build, **changed)
    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


def test_facts_name_everything_that_decides(llama_build: Build) -> None:
    facts = prepared(llama_build).facts(["pytest", "-x"])
    (build,) = facts["builds"]
    assert build["sha256"] == llama_build.sha256
    assert build["commit"] == llama_build.capabilities.commit
    assert facts["argv"] == ["pytest", "-x"]
    assert [model["name"] for model in facts["models"]] == [
        "llama",
        "gemma3",
        "mamba2",
        "granitehybrid",
    ]
    assert all(set(model["adapters"]) == {"A", "B"} for model in facts["models"])
    assert {"python", "pytest", "numpy", "gguf"} <= facts["versions"].keys()
    json.dumps(facts)
