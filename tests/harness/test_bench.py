"""What scenarios of one build share: cold runs, token counts, the tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.answers import BASE_TOLERANCE, Tolerance
from harness.bench import Bench
from harness.prompts import Route, prose
from harness.server.guard import Guard
from harness.setting import Setting

P = prose("bench", 150)
HALF = Setting.of({"A": 0.5})

MakeBench = Callable[..., Bench]


@pytest.fixture
def make(llama_bench: Bench, llama_guard: Guard, tmp_path: Path) -> Iterator[MakeBench]:
    made: list[Bench] = []

    def make(*extra_args: str, devices: tuple[str, ...] = ()) -> Bench:
        program = llama_bench.program
        capabilities = replace(program.capabilities, devices=devices)
        bench = Bench(
            program=replace(program, capabilities=capabilities),
            model=llama_bench.model,
            guard=llama_guard,
            directory=tmp_path,
            extra_args=extra_args,
        )
        made.append(bench)
        return bench

    yield make
    for bench in made:
        bench.close()


@pytest.mark.parametrize("route", list(Route))
def test_a_cold_run_reuses_nothing_and_is_asked_once(make: MakeBench, route: Route) -> None:
    bench = make()
    first = bench.cold(route, P, HALF, timeout=30)
    other = bench.cold(route, P + "?", HALF, timeout=30)
    assert (first.timings.cache_n, other.timings.cache_n) == (0, 0)
    assert bench.cold(route, P, HALF, timeout=30) is first
    assert bench.cold(route, P, Setting(), timeout=30).text != first.text


def test_tokens_are_those_of_the_route(make: MakeBench, tmp_path: Path) -> None:
    bench = make()
    with bench.server(bench.config({}, parallel=1), tmp_path / "server.log") as server:
        text = bench.tokens(server.client, Route.COMPLETION, P)
        chat = bench.tokens(server.client, Route.CHAT, P)
        reply = server.client.chat(P.messages)
    assert len(text) == 150 + 1
    assert len(chat) == reply.prompt_tokens > len(text)


def test_the_tolerance_is_known_where_the_noise_is(make: MakeBench) -> None:
    assert make().tolerance(30) == Tolerance()


def test_the_tolerance_is_measured_elsewhere(make: MakeBench) -> None:
    """With other server arguments, or on a device: the control shows what noise there is."""
    for bench in (make("-fa", "on"), make(devices=("CUDA0: some",))):
        tolerance = bench.tolerance(30)
        assert tolerance.signal < 100
        assert 0 < tolerance.noise < tolerance.signal / 32
        assert tolerance.tells
        assert tolerance.limit >= BASE_TOLERANCE


def test_an_adapter_list_states_every_adapter(make: MakeBench) -> None:
    assert make().lora_field(HALF) == [(0, 0.5), (1, 0.0)]
    assert make().lora_field(Setting()) == [(0, 0.0), (1, 0.0)]


def test_what_a_scenario_requires_wins_over_the_defaults(make: MakeBench) -> None:
    config = make("-t", "3").config({"A": 1.0}, parallel=4, ubatch_size=64)
    assert (config.parallel, config.ubatch_size, config.flash_attn) == (4, 64, "off")
    assert [(a.path.name, a.scale) for a in config.adapters] == [("A.gguf", 1.0)]
    assert config.extra_args == ("-t", "3")
