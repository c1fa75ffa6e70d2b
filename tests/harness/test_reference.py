"""Cold runs, where the server that was to make them dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from harness.bench import Bench
from harness.client import Options
from harness.errors import Disconnected, ReferenceTrouble, RequestError
from harness.prompts import Route, prose
from harness.reference import Reference, reference_config
from harness.replies import CompletionReply
from harness.server.config import ServerConfig
from harness.server.process import LlamaServer, ServerExited
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

    def cause(self, error: RequestError) -> RequestError | ServerExited:
        return ServerExited(self._real, -6)

    @property
    def client(self) -> Mortal:
        return self

    def completion(self, text: str, options: Options, **more: Any) -> CompletionReply:
        if self._dies_of(self._last, options.lora):
            raise Disconnected("POST /completion: the connection was closed")
        return self._real.client.completion(text, options, **more)


MakeReference = Callable[[Callable[[Any, Any], bool]], tuple[Reference, list[ServerConfig]]]


@pytest.fixture
def make(llama_bench: Bench, tmp_path: Path) -> MakeReference:
    def make(dies_of: Callable[[Any, Any], bool]) -> tuple[Reference, list[ServerConfig]]:
        """A reference, and the configurations of the servers it has started so far."""
        started: list[ServerConfig] = []

        def make_server(config: ServerConfig, log_path: Path) -> LlamaServer:
            started.append(config)
            return cast(LlamaServer, Mortal(llama_bench.server(config, log_path), dies_of))

        config = reference_config(llama_bench.config({}), llama_bench.model)
        reference = Reference(
            config=config,
            model=llama_bench.model,
            make_server=make_server,
            directory=tmp_path,
            quiet=True,
        )
        return reference, started

    return make


def test_a_server_that_dies_of_a_change_is_replaced_by_one_without(make: MakeReference) -> None:
    reference, started = make(lambda before, now: before != now)
    try:
        plain = reference.cold(Route.COMPLETION, P, Setting(), 60)
        under_a = reference.cold(Route.COMPLETION, P, A, 60)
        assert plain.text != under_a.text
        again = reference.cold(Route.COMPLETION, P + "!", A, 60)
        assert again.text[0] == under_a.text[0]
    finally:
        reference.close()
    scales = [[adapter.scale for adapter in config.adapters] for config in started]
    assert scales == [[0.0, 0.0], [1.0, 0.0]]


def test_a_server_that_dies_anyway_is_trouble(make: MakeReference) -> None:
    reference, started = make(lambda before, now: any(scale for _, scale in now))
    try:
        with pytest.raises(ReferenceTrouble, match="no cold run: llama-server was killed"):
            reference.cold(Route.COMPLETION, P, A, 60)
        assert len(started) == 2
        reference.cold(Route.COMPLETION, P, Setting(), 60)
    finally:
        reference.close()


def test_a_server_that_dies_without_a_change_is_not_asked_again(make: MakeReference) -> None:
    reference, started = make(lambda before, now: True)
    with pytest.raises(ReferenceTrouble, match="no cold run: llama-server was killed"):
        reference.cold(Route.COMPLETION, P, Setting(), 60)
    assert len(started) == 1
