"""What scenarios of one build share: cold runs, token counts, the tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import pytest

from harness.answers import BASE_TOLERANCE, Tolerance
from harness.bench import Bench
from harness.client import Options
from harness.errors import NotTestable, OtherServerNeeded
from harness.memory import Memory
from harness.models.synthetic import llama
from harness.models.synthetic.recipe import write_model
from harness.models.user import user_model
from harness.prompts import Route, prose
from harness.reasons.course import Rules
from harness.reference import Reference, send
from harness.replies import Reply
from harness.server.attached import Attached, AttachedServer
from harness.server.config import ConfigFields
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
            seconds=30.0,
            extra_args=extra_args,
        )
        made.append(bench)
        return bench

    yield make
    for bench in made:
        bench.close()


def reference(bench: Bench, **required: Unpack[ConfigFields]) -> Reference:
    return bench.reference(bench.config({"A": 0.0}, **required))


@pytest.mark.parametrize("route", list(Route))
def test_a_cold_run_reuses_nothing_and_is_asked_once(make: MakeBench, route: Route) -> None:
    cold = reference(make())
    first = cold.cold(route, P, HALF, 30)
    other = cold.cold(route, P + "?", HALF, 30)
    assert (first.timings.cache_n, other.timings.cache_n) == (0, 0)
    assert cold.cold(route, P, HALF, 30) is first
    assert cold.cold(route, P, Setting(), 30).text != first.text


def test_a_reference_follows_what_decides_numbers_and_nothing_else(make: MakeBench) -> None:
    bench = make()
    one = reference(bench, parallel=4, kv_unified=True, cache_ram=256)
    assert reference(bench, parallel=1, kv_unified=False, cache_ram=0) is one
    other = reference(bench, flash_attn="on")
    assert other is not one
    assert (other.config.flash_attn, other.config.parallel, other.config.cache_ram) == ("on", 1, 0)


def test_tokens_are_those_of_the_route(make: MakeBench, tmp_path: Path) -> None:
    bench = make()
    with bench.server(bench.config({}, parallel=1), tmp_path / "server.log") as server:
        text = bench.tokens(server.client, Route.COMPLETION, P, 30)
        chat = bench.tokens(server.client, Route.CHAT, P, 30)
        reply = server.client.chat(P.messages)
    assert len(text) == 150 + 1
    assert len(chat) == reply.prompt_tokens > len(text)


def test_the_tolerance_is_known_where_the_noise_is(make: MakeBench) -> None:
    assert reference(make()).tolerance(30) == Tolerance()
    assert reference(make(), parallel=4, ctx_size=512).tolerance(30) == Tolerance()


@pytest.mark.parametrize("elsewhere", ["argument", "device", "requirement"])
def test_the_tolerance_is_measured_elsewhere(make: MakeBench, elsewhere: str) -> None:
    """With other numbers, or on a device: the control shows what noise there is."""
    cold = {
        "argument": lambda: reference(make("-fa", "on")),
        "device": lambda: reference(make(devices=("CUDA0: some",))),
        "requirement": lambda: reference(make(), flash_attn="on"),
    }[elsewhere]()
    tolerance = cold.tolerance(30)
    assert tolerance.noise is not None
    assert tolerance.signal is not None
    assert 0 < tolerance.noise < tolerance.signal / 32
    assert tolerance.signal < 100
    assert tolerance.tells
    assert tolerance.limit >= BASE_TOLERANCE


def test_nothing_is_assumed_of_a_server_that_was_attached_to(make: MakeBench) -> None:
    """What it was not told it has chosen itself; cold runs are to choose the same."""
    bench = make("-c", "8192", "-np", "1", "-t", "2")
    bench.attached = Attached(
        url="http://127.0.0.1:1",
        pid=1,
        started=0.0,
        command=("llama-server",),
        model=bench.model.file.path,
        adapters=(),
        extra_args=bench.extra_args,
    )
    config = bench.config({}, parallel=1)
    assert (config.threads, config.flash_attn, config.ubatch_size, config.fit) == (None,) * 4
    assert isinstance(bench.under_test(config, bench.directory / "x.log"), AttachedServer)
    assert not bench.reference(config).quiet
    with pytest.raises(OtherServerNeeded, match="needs --flash-attn off, the server was") as needed:
        bench.config({}, flash_attn="off")
    assert needed.value.command[-2:] == ("-t", "2")
    with pytest.raises(NotTestable, match="slot files are not tested"):
        bench.config({}, slot_save_path=bench.directory)


def test_the_signal_of_a_model_without_adapters_is_another_text(make: MakeBench) -> None:
    bench = make("-fa", "on")
    bench.model = replace(bench.model, adapters={})
    tolerance = bench.reference(bench.config({})).tolerance(30)
    assert tolerance.signal is not None
    assert 0 < tolerance.signal < 100


def test_the_control_reuses_much_and_little_and_nothing_of_others(
    make: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under each setting: some tokens read, just one, and more than half of the prompt."""
    asked: list[tuple[Options, Reply]] = []

    def recorded(*given: Any, **more: Any) -> Reply:
        reply = send(*given, **more)
        asked.append((given[3], reply))
        return reply

    monkeypatch.setattr("harness.reference.send", recorded)
    bench = make("-fa", "on")
    reference(bench).tolerance(30)
    reused = [(o.lora, r) for o, r in asked if o.cache_prompt]
    assert len(reused) == 3 * 5  # no adapter, and two at two scales
    for at in range(0, len(reused), 3):
        some, one, many = (reply.timings.prompt_n for _, reply in reused[at : at + 3])
        assert (some, one) == (len(" and on") + 1 - 1, 1)
        assert many > reused[at][1].prompt_tokens / 2
    fresh = [r for o, r in asked if not o.cache_prompt]
    assert {reply.timings.cache_n for reply in fresh} == {0}


def test_a_control_without_reuse_tells_nothing(
    make: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cold runs compared with cold runs would show no noise at all."""

    def cold(*given: Any, **more: Any) -> Reply:
        client, route, prompt, options, timeout = given
        return send(client, route, prompt, replace(options, cache_prompt=False), timeout, **more)

    monkeypatch.setattr("harness.reference.send", cold)
    tolerance = reference(make("-fa", "on")).tolerance(30)
    assert tolerance.noise is None
    assert not tolerance.tells


def test_the_micro_batch_in_force(make: MakeBench) -> None:
    bench = make()
    assert bench.ubatch(bench.config({})) == 512
    assert bench.ubatch(bench.config({}, ubatch_size=32)) == 32
    for words in (("-ub", "64"), ("--ubatch-size", "64")):
        bench = make(*words)
        assert bench.ubatch(bench.config({})) == 64


def test_what_a_server_chooses_by(make: MakeBench) -> None:
    bench = make()
    assert bench.rules(bench.config({})) == Rules(0.1, prompt_cache=True)  # llama-server's own
    ours = bench.config({}, slot_prompt_similarity=0.5, cache_ram=0)
    assert bench.rules(ours) == Rules(0.5, prompt_cache=False)
    for words in (("-sps", "0", "-cram", "0"), ("--slot-prompt-similarity", "0", "-cram", "0")):
        bench = make(*words)
        assert bench.rules(bench.config({})) == Rules(0.0, prompt_cache=False)


def test_memory_that_cannot_rewind_gets_small_micro_batches(make: MakeBench) -> None:
    """Otherwise nothing at all could be promised of a short prompt."""
    bench = make()
    bench.model = replace(bench.model, memory=Memory.SWA)
    assert bench.config({}).ubatch_size == 64


def test_a_model_sees_more_than_it_was_trained_for(make: MakeBench, tmp_path: Path) -> None:
    """Without that, slots are cut down, and prompts of scenarios refused."""
    path = tmp_path / "model.gguf"
    recipe = llama.recipe()
    short = {**recipe.metadata, "context_length": 256}
    write_model(replace(recipe, metadata=short), path)
    bench = make()
    bench.model = replace(user_model(path, []), adapters={})
    config = bench.config({})
    assert config.override_kv == "llama.context_length=int:8192"
    with bench.server(config, tmp_path / "server.log") as server:
        reply = server.client.completion(prose("long", 600).text)
        assert reply.prompt_tokens == 601
        assert server.client.slots()[0].n_ctx >= 601
    assert bench.config({}, ctx_size=256).override_kv is None
    larger = bench.changed(config, ctx_size=16384)
    assert larger.override_kv == "llama.context_length=int:16384"
    bench.extra_args = ("--override-kv", "llama.context_length=int:99")
    assert bench.config({}).override_kv is None
    bench.extra_args = ("--override-kv", "general.name=str:other")  # both count
    with bench.server(bench.config({}), tmp_path / "server.log") as server:
        assert server.client.slots()[0].n_ctx >= 601
    bench.extra_args = ()
    bench.model = replace(bench.model, trained=None)
    assert bench.config({}).override_kv is None


def test_what_a_scenario_requires_wins_over_the_defaults(make: MakeBench) -> None:
    config = make("-t", "3").config({"A": 1.0}, parallel=4, ubatch_size=64)
    assert (config.parallel, config.ubatch_size, config.flash_attn) == (4, 64, "off")
    assert [(a.path.name, a.scale) for a in config.adapters] == [("A.gguf", 1.0)]
    assert config.extra_args == ("-t", "3")
