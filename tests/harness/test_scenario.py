"""Scenarios on a real server: what they record, and how each kind of failure comes out."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Unpack

import psutil
import pytest

from harness.answers import Tolerance
from harness.bench import Bench
from harness.cause import Cause
from harness.client import Client, Options
from harness.errors import DoesNotStart, HarnessError, NotTestable, ReferenceTrouble, Refused
from harness.expect import Claim
from harness.ledger import ColdRow, Reason
from harness.loaded import NO_FIELD
from harness.prompts import Prompt, Route, prose
from harness.reference import Reference, send
from harness.replies import Reply, SlotFile
from harness.report.failure import failure_text
from harness.scenario import Scenario
from harness.server.config import ConfigFields
from harness.stage import ScenarioFailed

P, Q = prose("P", 200), prose("Q", 200)

Make = Callable[..., Scenario]


@pytest.fixture
def make(llama_bench: Bench, tmp_path: Path) -> Make:
    def make(
        route: Route = Route.COMPLETION, seconds: float = 30.0, **fields: Unpack[ConfigFields]
    ) -> Scenario:
        adapters = {"A": 0.0}
        required: ConfigFields = {"parallel": 1, "cache_ram": 64, **fields}
        return Scenario(
            bench=llama_bench,
            config=llama_bench.config(adapters, **required),
            adapters=adapters,
            route=route,
            directory=tmp_path,
            seconds=seconds,
        )

    return make


def end(pid: int, number: signal.Signals) -> None:
    """Signals one of our servers and waits for its end, which is left for the product to see."""
    os.kill(pid, number)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("route", list(Route))
def test_what_a_step_records(make: Make, route: Route) -> None:
    with make(route) as s:
        first = s.ask("P", P, lora={"A": 0.5}, slot=0)
        s.ask("P, next turn", P.then(first.text, "?"), lora={"A": 0.5}, reuse=Claim.PROMISED)
    seed, turn = (step.row for step in s.steps)
    assert (seed.step, seed.route, seed.slot_asked) == ("P", route, 0)
    assert (seed.lora, seed.setting) == ({"A": 0.5}, {"A": 0.5})
    assert (seed.possible, seed.expected) == (0, (0, 0))
    # The next turn may reuse the prompt and all generated tokens but the last.
    assert turn.possible == seed.prompt_tokens + 4 - 1
    assert turn.expected == (turn.possible, turn.possible)
    assert turn.cache_n == turn.possible
    assert turn.answer is not None
    assert "cell" in turn.answer
    assert "cold run" in turn.answer
    assert s.signature() == ()
    assert all(step.log and "stop processing" in step.log.text() for step in s.steps)


def test_no_prompt_text_is_recorded(make: Make) -> None:
    with make() as s:
        s.ask("step", P, lora=NO_FIELD)
    word = P.text.split()[3]
    assert word not in repr([step.row for step in s.steps])
    assert word not in s.server.log.path.read_text()


def test_the_setting_in_force(make: Make) -> None:
    with make() as s:
        s.ask("explicit", P, lora={"A": 1.0}, reuse=Claim.UNJUDGED)
        s.ask("left out", P, lora=NO_FIELD, reuse=Claim.UNJUDGED)
        s.set_server_wide({"A": 0.5})
        s.ask("left out again", P, lora=NO_FIELD, reuse=Claim.UNJUDGED)
    asked = [step.row for step in s.steps if step.row.prompt_tokens]
    assert [row.setting for row in asked] == [{"A": 1.0}, {}, {"A": 0.5}]
    assert [row.lora for row in asked] == [{"A": 1.0}, None, None]


def test_all_steps_run_and_every_failure_is_reported(make: Make) -> None:
    """With no prompt cache that the scenario knows of, what it promises is lost."""
    scenario = make()
    scenario.config = replace(scenario.config, extra_args=("--cache-ram", "0"))
    with pytest.raises(ScenarioFailed) as failed, scenario as s:
        for turn in (1, 2):
            reuse = Claim.ALLOWED if turn == 1 else Claim.PROMISED
            s.ask(f"P{turn}", P, lora=NO_FIELD, reuse=reuse)
            s.ask(f"Q{turn}", Q, lora=NO_FIELD, reuse=reuse)
    assert scenario.signature() == ("P2: lost_reuse", "Q2: lost_reuse")
    assert str(failed.value) == "P2: lost_reuse, Q2: lost_reuse"
    text = failure_text(scenario, title="title", closing=["run again: pytest x"])
    assert "P2: lost_reuse: 199 tokens were read again for nothing" in text  # all but the BOS
    assert "stop processing" in text  # of the request, from the log
    assert P.text[:20] not in text
    assert text.splitlines()[-1] == "run again: pytest x"


def test_trouble_with_a_reason_costs_no_verdict(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    scenario = make()
    with pytest.raises(ScenarioFailed), scenario as s:
        s.ask("P", P, lora={"A": 1.0})
        s.ask("none", P, lora=NO_FIELD)
    monkeypatch.setattr("harness.stage.events", fail)
    scenario.explain()
    assert scenario.signature() == ("none: wrong_answer", "none: wrong_reuse")
    first, last = (step.row.reason for step in scenario.steps)
    assert first is None
    assert last == Reason(cause=Cause.UNKNOWN, text="explaining failed with ZeroDivisionError")


def test_a_crash_is_a_crash(make: Make) -> None:
    scenario = make()
    with pytest.raises(ScenarioFailed), scenario as s:
        s.ask("P", P, lora=NO_FIELD)
        end(s.server.pid, signal.SIGSEGV)
        s.ask("Q", Q, lora=NO_FIELD)
        raise AssertionError("the scenario goes on without a server")
    assert scenario.signature() == ("Q: crash",)
    ((_, message),) = scenario.steps[-1].row.failures
    assert message == "llama-server was killed by SIGSEGV"
    assert "command: " in scenario.steps[-1].details[0]


def test_a_crash_after_the_last_reply(make: Make) -> None:
    scenario = make()
    with pytest.raises(ScenarioFailed), scenario as s:
        s.ask("P", P, lora=NO_FIELD)
        end(s.server.pid, signal.SIGKILL)
    assert scenario.signature() == ("end: crash",)


def test_a_hang_is_a_hang_and_ends_before_the_test_does(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.server.process._STOP_SECONDS", 0.1)  # a stopped one ignores TERM
    scenario = make(seconds=1.0)
    with pytest.raises(ScenarioFailed), scenario as s:
        os.kill(s.server.pid, signal.SIGSTOP)
        s.ask("Q", prose("never asked before", 90), lora=NO_FIELD)
    assert scenario.signature() == ("Q: hang",)


def test_a_refusal_is_told_in_the_servers_words(make: Make) -> None:
    scenario = make(ctx_size=256)
    with pytest.raises(ScenarioFailed), scenario as s:
        s.ask("too long", prose("too long", 400), lora=NO_FIELD)
    assert scenario.signature() == ("too long: refused",)
    ((_, message),) = scenario.steps[-1].row.failures
    assert message == "POST /completion was refused with HTTP 400"
    assert "context" in scenario.steps[-1].details[0]


def test_a_server_that_does_not_start_is_no_verdict(make: Make, tmp_path: Path) -> None:
    scenario = make(cache_type_k="nonsense")
    with pytest.raises(DoesNotStart, match=r"llama does not start with .*nonsense: "), scenario:
        raise AssertionError("never begun")
    assert scenario.steps == []


def test_an_error_of_the_test_itself_is_not_hidden(make: Make) -> None:
    scenario = make()
    with pytest.raises(ZeroDivisionError), scenario as s:
        pid = s.server.pid
        raise ZeroDivisionError
    assert not psutil.pid_exists(pid)


def test_steps_state_every_adapter_and_have_their_own_name(make: Make) -> None:
    with make() as s:
        s.ask("P", P, lora=NO_FIELD)
        with pytest.raises(AssertionError, match="two steps"):
            s.ask("P", P, lora=NO_FIELD)
        with pytest.raises(AssertionError, match="every loaded adapter"):
            s.ask("Q", Q, lora={"B": 1.0})


def test_scales_that_no_cell_tells_are_refused_before_anything_is_sent(make: Make) -> None:
    with make() as s:
        with pytest.raises(ValueError, match=r"0\.3"):
            s.ask("P", P, lora={"A": 0.3})
        assert s.steps == []
        s.ask("P", P, lora=NO_FIELD)


def test_an_empty_field_needs_server_wide_scales_of_zero(make: Make) -> None:
    with make() as s:
        s.set_server_wide({"A": 1.0})
        with pytest.raises(AssertionError, match="means two things"):
            s.ask("P", P, lora={})


def test_trouble_of_the_reference_is_no_verdict_and_mended(
    make: Make, llama_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server under test did nothing wrong when no cold run can be had."""
    with make() as s:
        s.ask("warm up", prose("cold crash", 150), lora=NO_FIELD)
    reference = llama_bench.reference(s.config)
    assert reference._server is not None
    end(reference._server.pid, signal.SIGKILL)
    scenario = make()
    trouble = "no cold run: llama-server was killed by SIGKILL"
    with pytest.raises(ReferenceTrouble, match=trouble), scenario as s:
        s.ask("P", prose("another", 150), lora=NO_FIELD)
    assert scenario.signature() == ()
    assert [step.row.step for step in scenario.steps] == ["P"]
    with make() as s:
        s.ask("P", prose("another", 150), lora=NO_FIELD)


def test_the_references_time_is_not_the_scenarios(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cold run that takes long leaves the server under test its time."""
    real, now = Reference.cold, [1.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])

    def slow(self: Reference, *args: Any, **options: Any) -> Reply:
        now[0] += 20.0
        return real(self, *args, **options)

    monkeypatch.setattr(Reference, "cold", slow)
    monkeypatch.setattr("harness.stopwatch.time", clock)
    with make(seconds=30.0) as s:
        s.ask("P", prose("takes long", 150), lora=NO_FIELD)
    assert (s._watch.left, s._judge.watch.left) == (30.0, 10.0)


def test_other_numbers_have_a_reference_of_their_own(make: Make) -> None:
    """Flash attention changes logprobs: a cold run without it would call the answer wrong."""
    with make(flash_attn="on") as s:
        s.ask("P1", P, lora=NO_FIELD)
        s.ask("Q", Q, lora=NO_FIELD)
        s.ask("P2", P, lora=NO_FIELD, reuse=Claim.PROMISED)
    cold = s.steps[-1].row.cold
    assert cold is not None
    assert cold.noise is not None
    assert cold.apart is not None
    assert cold.apart < cold.limit


@pytest.mark.parametrize("generated", [True, False])
def test_an_answer_that_noise_hides_is_not_judged(
    make: Make, llama_bench: Bench, monkeypatch: pytest.MonkeyPatch, generated: bool
) -> None:
    """On a generated model it is no noise: trouble, and no verdict."""
    blind = Tolerance.of_control(noise=0.3, signal=0.9)
    monkeypatch.setattr(Reference, "tolerance", lambda *given, **more: blind)
    monkeypatch.setattr(Reference, "cold", lambda *given, **more: pytest.fail("asked for nothing"))
    if generated:
        with pytest.raises(ReferenceTrouble, match="noise hides"), make() as s:
            s.ask("P", P, lora=NO_FIELD)
        return
    monkeypatch.setattr(llama_bench, "model", replace(llama_bench.model, oracle=None))
    with make() as s:
        s.ask("P", P, lora=NO_FIELD)
    row = s.steps[0].row
    assert (row.answer or "").startswith("not judged: noise hides")
    assert row.cold == ColdRow(limit=blind.limit, noise=0.3, signal=0.9)
    assert row.failures == ()


def test_where_nothing_is_reused_that_is_what_shows(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of such a build is none, but that does not keep reuse from being judged."""

    def cold(client: Client, route: Route, prompt: Prompt, options: Options, *given: Any) -> Reply:
        return send(client, route, prompt, replace(options, cache_prompt=False), *given)

    monkeypatch.setattr("harness.reference.send", cold)
    monkeypatch.setattr("harness.scenario.send", lambda *given, stream: cold(*given))
    scenario = make(flash_attn="on")
    with pytest.raises(ScenarioFailed), scenario as s:
        s.ask("P", P, lora=NO_FIELD)
        s.ask("P again", P, lora=NO_FIELD, reuse=Claim.PROMISED)
    assert scenario.signature() == ("P again: lost_reuse",)
    assert (s.steps[1].row.answer or "").endswith(
        "not judged: the control reused nothing, which shows no noise"
    )


def test_a_wrong_answer_of_a_real_model_shows(
    make: Make, llama_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a cell, beyond what is allowed and not before; the message says what that is."""
    tolerance = Tolerance.of_control(noise=0.001, signal=0.8)
    monkeypatch.setattr(Reference, "tolerance", lambda *given, **more: tolerance)
    monkeypatch.setattr(llama_bench, "model", replace(llama_bench.model, oracle=None))
    for shift, signature in ((0.015, ()), (0.025, ("P: wrong_answer",))):
        scenario = make()
        shifted = _with_shifted_logprobs(shift)
        with monkeypatch.context() as patch, suppress(ScenarioFailed), scenario as s:
            patch.setattr("harness.scenario.send", shifted)
            s.ask("P", P, lora=NO_FIELD)
        assert scenario.signature() == signature
        cold = scenario.steps[0].row.cold
        assert cold is not None
        assert cold.apart == pytest.approx(shift)
    text = failure_text(scenario, title="title", closing=[])
    assert "answers judged by: cold run, within 2.0e-02 (control: noise 1.0e-03, " in text


def _with_shifted_logprobs(shift: float) -> Callable[..., Reply]:
    """What is asked of the server, with the first token's logprobs moved by so many nats."""

    def shifted(*given: Any, **more: Any) -> Reply:
        reply = send(*given, **more)
        first, *others = reply.tokens
        top = tuple((token, logprob - shift) for token, logprob in first.top)
        return replace(reply, tokens=(replace(first, top=top), *others))

    return shifted


def test_another_act_is_a_step_of_its_own(make: Make) -> None:
    scenario = make()
    with pytest.raises(ScenarioFailed), scenario as s:
        s.ask("P", P, lora=NO_FIELD)
        s.set_server_wide({"A": 1.0})
        s.act("restore", lambda client, seconds: client.restore_slot(0, "none", timeout=seconds))
        raise AssertionError("the scenario goes on without what it needs")
    assert [step.row.step for step in s.steps] == ["P", "POST /lora-adapters 1", "restore"]
    assert scenario.steps[1].row.lora == {"A": 1.0}
    assert scenario.signature() == ("restore: refused",)


@pytest.fixture
def make_with_files(make: Make, tmp_path: Path) -> Make:
    """Scenarios with slot files and no prompt cache."""
    directory = tmp_path / "slots"
    directory.mkdir()

    def make_with_files(**fields: Unpack[ConfigFields]) -> Scenario:
        required: ConfigFields = {"cache_ram": 0, "slot_save_path": directory, **fields}
        return make(**required)

    return make_with_files


def test_a_restart_leaves_nothing_but_slot_files(make_with_files: Make) -> None:
    with make_with_files() as s:
        before = s.server.pid
        answer = s.ask("P", P)
        s.set_server_wide({"A": 1.0})
        s.save("save", slot=0, file="p")
        s.restart()
        assert s.server.pid != before
        s.ask("P, nothing there", P)
        s.restore("restore", slot=0, file="p")
        s.ask("P, next turn", P.then(answer.text, "?"), reuse=Claim.PROMISED)
    rows = {step.row.step: step.row for step in s.steps}
    assert rows["P, nothing there"].possible == 0
    assert rows["P, nothing there"].setting == {}  # as on the command line
    assert rows["P, next turn"].possible == len(P.text) + 1 + 3
    assert rows["restore"].file
    assert rows["save"].file
    assert rows["restore"].file.tokens == rows["save"].file.tokens == len(P.text) + 1 + 3
    assert s.signature() == ()


def test_a_restart_with_other_values(make: Make) -> None:
    with make(ctx_size=1024) as s:
        s.ask("P", P)
        s.restart(ctx_size=512, cache_ram=0)
        s.ask("P again", P)
    assert "--ctx-size 512" in " ".join(s.command)
    assert s.config.cache_ram == 0
    assert s.steps[-1].row.possible == 0


def test_a_crash_before_a_restart(make: Make) -> None:
    scenario = make()
    with pytest.raises(ScenarioFailed), scenario as s:
        s.ask("P", P)
        end(s.server.pid, signal.SIGSEGV)
        s.restart()
    assert scenario.signature() == ("restart 1: crash",)


def test_a_server_that_does_not_start_again(make_with_files: Make) -> None:
    """It did before: what it finds now has ended it."""
    scenario = make_with_files()
    with pytest.raises(ScenarioFailed), scenario as s:
        s.ask("P", P)
        s.restart(cache_type_k="nonsense")
    assert scenario.signature() == ("restart 1: crash",)


def test_a_full_disk_is_nobodys_fault(
    make_with_files: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(free=4096)
    monkeypatch.setattr("harness.scenario.shutil.disk_usage", lambda path: full)
    refusal = Refused(500, "Unable to save slot", request="save")

    def refuse(*args: object, **options: object) -> None:
        raise refusal

    monkeypatch.setattr(Client, "save_slot", refuse)
    scenario = make_with_files()
    with pytest.raises(HarnessError, match="no room for slot files"), scenario as s:
        s.ask("P", P)
        s.save("save", slot=0, file="p")


def test_what_must_be_refused(make_with_files: Make) -> None:
    scenario = make_with_files()
    with pytest.raises(ScenarioFailed), scenario as s:
        s.ask("P", P)
        s.refused(
            "restore", lambda client, seconds: client.restore_slot(0, "none", timeout=seconds)
        )
        s.refused("health", lambda client, seconds: client.health(timeout=seconds))
        s.ask("Q", Q)
    assert scenario.signature() == ("health: accepted",)


def test_an_empty_slot_may_be_saved_or_not(make_with_files: Make) -> None:
    with make_with_files() as s:
        if s.save("save", slot=0, file="none"):
            s.restore("restore", slot=0, file="none")
        s.ask("P", P)
    assert s.steps[0].row.note in ("left with 0 tokens", "refused with HTTP 400")
    assert s.signature() == ()


def test_a_save_that_is_a_lie(make_with_files: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    lie = SlotFile(id_slot=0, n_tokens=7, n_bytes=100, ms=1.0)
    monkeypatch.setattr(Client, "save_slot", lambda *args, **options: lie)
    scenario = make_with_files()
    with pytest.raises(ScenarioFailed), scenario as s:
        s.save("save nothing", slot=0, file="none")
        s.ask("P", P)
    found = [message for _, message in scenario.steps[0].row.failures]
    assert found == [
        "n_saved 7, but the slot was left with 0 tokens",
        "n_written 100, but the file has 0 bytes",
    ]


def test_a_restore_that_is_a_lie(make_with_files: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = make_with_files()
    with pytest.raises(ScenarioFailed), scenario as s:
        s.ask("P", P)
        s.save("save", slot=0, file="p")
        lie = SlotFile(id_slot=0, n_tokens=7, n_bytes=100, ms=1.0)
        monkeypatch.setattr(Client, "restore_slot", lambda *args, **options: lie)
        s.restore("restore", slot=0, file="p")
    assert scenario.signature() == ("restore: accounting",)


def test_a_death_while_tokens_are_counted(make: Make) -> None:
    scenario = make()
    with pytest.raises(ScenarioFailed), scenario as s:
        s.ask("P", P)
        end(s.server.pid, signal.SIGABRT)
        s.tokens(prose("never seen before", 50))
    assert scenario.signature() == ("tokenize: crash",)


def test_a_death_is_worth_more_than_a_missing_precondition(make: Make) -> None:
    scenario = make()
    with pytest.raises(ScenarioFailed), scenario as s:
        s.ask("P", P)
        end(s.server.pid, signal.SIGABRT)
        raise NotTestable("needs the moon")
    assert scenario.signature() == ("end: crash",)


def test_a_changed_file_counts_up_to_the_change(make_with_files: Make) -> None:
    with make_with_files() as s:
        s.ask("P", P)
        s.save("save", slot=0, file="p")
        s.restart()
        assert s.restore("restore", slot=0, file="p", damaged_at=50)  # it is whole in fact
        s.ask("P again", P, reuse=Claim.UNJUDGED)
    assert s.steps[-1].row.possible == 50


def test_a_changed_file_may_be_refused_and_a_whole_one_not(make_with_files: Make) -> None:
    scenario = make_with_files()
    with pytest.raises(ScenarioFailed), scenario as s:
        s.ask("P", P)
        s.save("save", slot=0, file="p")
        s.slot_file("p").write_bytes(b"")
        assert not s.restore("changed", slot=0, file="p", damaged_at=0)
        s.restore("whole", slot=0, file="p")
    assert scenario.signature() == ("whole: refused",)


def test_no_file_of_another_server_is_no_verdict(make_with_files: Make, tmp_path: Path) -> None:
    scenario = make_with_files()
    with pytest.raises(ReferenceTrouble, match="no slot file of another server"), scenario as s:
        s.ask("P", P)
        s.save_elsewhere(P, "p", model=tmp_path / "no model")
    assert scenario.signature() == ()


def test_counters_are_compared_with_all_replies(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Client.metrics
    scenario = make()
    with pytest.raises(ScenarioFailed), scenario as s:
        s.ask("P", P, stream=True)
        s.check_metrics("right")
        s.restart()
        s.ask("Q", Q, cache_prompt=False)
        s.check_metrics("right after a restart")
        monkeypatch.setattr(
            Client, "metrics", lambda self, timeout: {**real(self), "prompt_tokens_total": 1.0}
        )
        s.check_metrics("wrong")
    assert scenario.signature() == ("wrong: accounting",)


def test_what_is_not_to_be_cached_may_reuse_nothing(make: Make) -> None:
    with make() as s:
        s.ask("P", P)
        s.ask("P again", P, cache_prompt=False, stream=True)
        s.ask("P, one token", P, n_predict=1, reuse=Claim.PROMISED)
    again = s.steps[1].row
    assert (again.expected, again.cache_prompt, again.stream) == ((0, 0), False, True)
    assert s.steps[2].row.predicted_n == 1


def test_nothing_is_promised_where_slots_may_have_been_overwritten(make: Make) -> None:
    with make(Route.CHAT, parallel=2, cache_ram=0) as s:
        s.ask("P", P)
        with pytest.raises(AssertionError, match="state the slots"):
            s.ask("P again", P, reuse=Claim.PROMISED)


def test_a_scenario_that_is_not_what_it_says(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """With our own model that is our fault; with a user's arguments it may be theirs."""
    with make() as s:
        s.require(True, "the sun")
        with pytest.raises(AssertionError, match="needs the moon"):
            s.require(False, "the moon")
        s.ask("P", P)
    monkeypatch.setattr(s.bench, "extra_args", ("-fa", "on"))
    with pytest.raises(NotTestable, match="needs the moon"):
        s.require(False, "the moon")


def test_a_finding_is_worth_more_than_a_missing_precondition(make: Make) -> None:
    scenario = make()
    with pytest.raises(ScenarioFailed), scenario as s:
        s.refused("health", lambda client, seconds: client.health(timeout=seconds))
        raise NotTestable("needs the moon")
    with pytest.raises(NotTestable), make() as s:
        s.ask("P", P)
        raise NotTestable("needs the moon")


def test_an_answer_that_is_too_short(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with make() as s:
        prompts = [prose(f"text {number}", 90) for number in range(20)]
        answers = {p: s.ask(p.text[:20], p, lora=NO_FIELD).text for p in prompts}
    prompt, answer = next((p, text) for p, text in answers.items() if text[1] != text[0])
    body = Options.body
    monkeypatch.setattr(Options, "body", lambda self: {**body(self), "stop": [answer[1]]})
    scenario = make()
    with pytest.raises((ScenarioFailed, ReferenceTrouble)), scenario as s:
        s.ask("P", prompt, lora=NO_FIELD)
    assert "P: accounting" in scenario.signature()
