"""Cold runs, where the server that was to make them dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from harness.bench import Bench
from harness.client import Options
from harness.errors import Disconnected, ReferenceTrouble
from harness.prompts import Prompt, Route, prose
from harness.reference import Reference, reference_config
from harness.replies import CompletionReply
from harness.server.config import ServerConfig
from harness.server.process import LlamaServer
from harness.setting import Setting

P = prose("P", 60)
A = Setting.of({"A": 1.0})


class Mortal:
    """A server whose client breaks off where scales are to change, or where any are in force."""

    def __init__(self, real: LlamaServer, dies_of: Callable[[Any, Any], bool]) -> None:
        self._real = real
        self._dies_of = dies_of
        self._last: Any = [(i, a.scale) for i, a in enumerate(real.config.adapters)]

    def start(self) -> None:
        self._real.start()

    def stop(self) -> None:
        self._real.stop()

    def cause(self, error: Exception) -> Exception:
        return error

    @property
    def client(self) -> Mortal:
        return self

    def completion(self, text: str, options: Options, **more: Any) -> CompletionReply:
        if self._dies_of(self._last, options.lora):
            raise Disconnected("POST /completion: the connection was closed")
        return self._real.client.completion(text, options, **more)


MakeReference = Callable[[Callable[[Any, Any], bool]], Reference]


@pytest.fixture
def make(llama_bench: Bench, tmp_path: Path) -> MakeReference:
    started = []

    def make(dies_of: Callable[[Any, Any], bool]) -> Reference:
        def make_server(config: ServerConfig, log_path: Path) -> LlamaServer:
            started.append(config)
            return cast(LlamaServer, Mortal(llama_bench.server(config, log_path), dies_of))

        config = reference_config(llama_bench.config({}), llama_bench.model)
        return Reference(
            config=config,
            model=llama_bench.model,
            make_server=make_server,
            directory=tmp_path,
            quiet=True,
        )

    return make


def test_a_server_that_dies_of_a_change_is_replaced_by_one_without(make: MakeReference) -> None:
    reference = make(lambda before, now: before != now)
    try:
        plain = reference.cold(Route.COMPLETION, P, Setting(), 60)
        under_a = reference.cold(Route.COMPLETION, P, A, 60)
        assert plain.text != under_a.text
        again = reference.cold(Route.COMPLETION, Prompt((P.text + "!",)), A, 60)
        assert again.text[0] == under_a.text[0]
    finally:
        reference.close()


def test_a_server_that_dies_anyway_is_trouble(make: MakeReference) -> None:
    reference = make(lambda before, now: any(scale for _, scale in now))
    try:
        reference.cold(Route.COMPLETION, P, Setting(), 60)
        with pytest.raises(ReferenceTrouble, match=r"no cold run: .*closed"):
            reference.cold(Route.COMPLETION, P, A, 60)
        reference.cold(Route.COMPLETION, Prompt((P.text + "!",)), Setting(), 60)
    finally:
        reference.close()
