"""The file that says how somebody runs llama-server."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from harness.deployment import KEYS, in_keys, read_deployment
from harness.errors import UsageProblem
from harness.suite import Server


def read(directory: Path, text: str) -> dict[str, Any]:
    path = directory / "prod.toml"
    path.write_text(text)
    return read_deployment(path)


def test_every_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are relative to the file, wherever one stands."""
    monkeypatch.chdir("/")
    monkeypatch.setenv("HOME", "/home/me")
    found = read(
        tmp_path,
        """
        args = "-fa on --cache-ram 8192"
        model = "models/chat.gguf"
        lora = ["a.gguf", "/x/b.gguf", "~/c.gguf"]
        device = "cpu"
        timeout = 120
        """,
    )
    assert found == {
        "args": ("-fa", "on", "--cache-ram", "8192"),
        "model": f"{tmp_path}/models/chat.gguf",
        "loras": (f"{tmp_path}/a.gguf", "/x/b.gguf", "/home/me/c.gguf"),
        "device": "cpu",
        "seconds": 120.0,
    }
    assert found.keys() < {field.name for field in fields(Server)}


def test_generated_models(tmp_path: Path) -> None:
    text = 'memory = "dense,swa"\naccept = ["#26207"]'
    assert read(tmp_path, text) == {"memory": "dense,swa", "accept": ("#26207",)}


def test_every_key_is_optional(tmp_path: Path) -> None:
    assert read(tmp_path, "") == {}


def test_arguments_as_words(tmp_path: Path) -> None:
    text = """args = ["--chat-template-kwargs", '{"a": 1}']"""
    assert read(tmp_path, text)["args"] == ("--chat-template-kwargs", '{"a": 1}')


@pytest.mark.parametrize("name", ["generated", "stories15m-moe"])
def test_a_model_by_its_name(tmp_path: Path, name: str) -> None:
    assert read(tmp_path, f'model = "{name}"') == {"model": name}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("args = ", "is not TOML: Invalid value"),
        ("\udcff", "is not TOML"),
        ("arg = '-fa on'\nmodle = 'x'", "nothing is known of 'arg', 'modle' (keys are args, model"),
        ("memory = 'swa'\nmodel = 'x'", "(leave one of them out)"),
        ("accept = ['#26207']\nmodel = 'x'", "(leave accept out)"),
        ("accept = '#26207'", "accept must be a list"),
        ("accept = ['26207']", "no known bug 26207 (there are #"),
        ("args = 1", "args: 1 is not a text"),
        ("args = ''", "args: '' is not a text"),
        ("args = ['-np', 4]", "args: 4 is not a text"),
        ('''args = "'unclosed"''', "args cannot be read: No closing quotation"),
        ("model = ['x']", "model: ['x'] is not a text"),
        ('model = "a\\u0000b"', "is not a text"),
        ("lora = 'a.gguf'", "lora must be a list of paths"),
        ("lora = [1]", "lora: 1 is not a text"),
        ("memory = true", "memory: True is not a text"),
        ("device = 'gpu'", "device must be one of cpu, cuda, vulkan, auto"),
        ("device = [1]", "device must be one of"),
        ("timeout = '1'", "timeout must be a number of seconds"),
        ("timeout = true", "timeout must be a number of seconds"),
        ("timeout = 0", "timeout=0: it must be above 0"),
        ("timeout = nan", "timeout=nan: it must be above 0"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "prod.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageProblem) as problem:
        read_deployment(path)
    assert str(problem.value).startswith(str(path))
    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="No such file"):
        read_deployment(tmp_path / "none.toml")
    with pytest.raises(UsageProblem, match="Is a directory"):
        read_deployment(tmp_path)


def test_what_is_said_of_options_is_said_of_keys() -> None:
    assert in_keys("needs -np 1, --llama-arg gives -np 4") == "needs -np 1, args gives -np 4"
    assert in_keys("--llama-lora needs --llama-model=PATH") == "lora needs model=PATH"
    assert in_keys("--llama-model-x") == "--llama-model-x"
    assert len(KEYS) == 6
