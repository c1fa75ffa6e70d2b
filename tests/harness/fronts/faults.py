"""What a front can do wrong. Each fault is made of small functions on requests and replies.

Faults concern requests that may reuse something; cold runs (`cache_prompt: false` on a server
without a prompt cache) are left alone, so that the reference stays honest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tests.harness.fronts import faulty_slot_files as faulty
from tests.harness.fronts.fleet import Answer, Body, CommandLine, Fleet, RealServer
from tests.harness.fronts.slot_files import SlotFiles


@dataclass(frozen=True, slots=True)
class Turn:
    """What a fault knows beside the request and the reply."""

    number: int
    """Of the request among those that may reuse something, from 1."""
    slots: int
    previous: Body | None
    """The true reply to the request before."""
    last: RealServer | None
    """The real server that answered the request before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Where a front deviates from a llama-server that does all right; by default, nowhere."""

    moves_states: bool = False
    """`--cache-reuse` reaches the real server, whatever its memory."""
    one_server: bool = False
    """All settings are served by one real llama-server, and requests are sent on as they are."""
    command_line: Callable[[CommandLine], CommandLine] = lambda line: line
    """Changes how real servers are started."""
    request: Callable[[Body, Turn], Body] = lambda request, turn: request
    """Changes a request, before it is decided which real server gets it."""
    before: Callable[[RealServer, Turn], None] = lambda server, turn: None
    """Does something to the real server that is about to get a request."""
    reply: Callable[[Answer, Turn], Answer] = lambda answer, turn: answer
    """Changes a reply."""
    after: Callable[[Fleet, Turn], None] = lambda fleet, turn: None
    """Does something once a reply is known."""
    embeds_aside: bool = True
    """Embeddings come from a real server of their own, and cost the others nothing."""
    uncached: Callable[[Body], Body] = lambda request: request
    """Changes a request that says `cache_prompt: false`, where there is a prompt cache."""
    other: Callable[[Fleet, str, Answer], Answer] = lambda fleet, path, answer: answer
    """Changes, or does something after, the answer to what is no request for tokens."""
    slot_files: type[SlotFiles] = SlotFiles
    """How slot files are kept."""


# Requests.


def _without_lora(request: Body, turn: Turn) -> Body:
    return _without(request, "lora")


def _other_scale(request: Body, turn: Turn) -> Body:
    other = {0.5: 1.0, 1.0: 0.5}
    if "lora" not in request:
        return request
    lora = [{**a, "scale": other.get(a["scale"], a["scale"])} for a in request["lora"]]
    return {**request, "lora": lora}


def _without_id_slot(request: Body, turn: Turn) -> Body:
    return _without(request, "id_slot")


def _other_slot(request: Body, turn: Turn) -> Body:
    if "id_slot" not in request:
        return request
    return {**request, "id_slot": (request["id_slot"] + turn.number) % turn.slots}


def _without(request: Body, name: str) -> Body:
    return {key: value for key, value in request.items() if key != name}


# Replies.


def _all_reused(answer: Answer, turn: Turn) -> Answer:
    return _claiming(answer, lambda cached, length: length - 1)


def _none_reused(answer: Answer, turn: Turn) -> Answer:
    return _claiming(answer, lambda cached, length: 0)


def _claiming(answer: Answer, claimed: Callable[[int, int], int]) -> Answer:
    """With another number of reused tokens, wherever the reply has one."""

    def change(reply: Body) -> Body:
        if "timings" not in reply:
            return reply
        timings = reply["timings"]
        length = timings["cache_n"] + timings["prompt_n"]
        cached = claimed(timings["cache_n"], length)
        timings |= {"cache_n": cached, "prompt_n": length - cached}
        if reply.get("usage"):
            reply["usage"]["prompt_tokens_details"]["cached_tokens"] = cached
        return reply

    return answer.edited(change)


def _none_reused_in_streams(answer: Answer, turn: Turn) -> Answer:
    return _none_reused(answer, turn) if answer.streamed else answer


def _one_too_many(answer: Answer, turn: Turn) -> Answer:
    def change(reply: Body) -> Body:
        if "timings" in reply:
            reply["timings"]["cache_n"] += 1
        return reply

    return answer.edited(change)


def _one_too_many_in_usage(answer: Answer, turn: Turn) -> Answer:
    def change(reply: Body) -> Body:
        if reply.get("usage"):
            reply["usage"]["prompt_tokens_details"]["cached_tokens"] += 1
        return reply

    return answer.edited(change)


def _answer_of_the_request_before(answer: Answer, turn: Turn) -> Answer:
    if turn.previous is None:
        return answer
    previous, names = turn.previous, ("content", "completion_probabilities", "choices")
    return answer.edited(lambda reply: {**reply, **{n: previous[n] for n in names if n in reply}})


def _other_text(answer: Answer, turn: Turn) -> Answer:
    """The text alone: the tokens it reports are the true ones."""

    def change(reply: Body) -> Body:
        if "content" in reply:
            reply["content"] = "zzzz"
        for choice in reply.get("choices", ()):
            choice["message"]["content"] = "zzzz"
        return reply

    return answer.edited(change)


def _none_to_the_third(answer: Answer, turn: Turn) -> Answer:
    if turn.number == 3:
        threading.Event().wait()
    return answer


def _refusal_of_the_third(answer: Answer, turn: Turn) -> Answer:
    return Answer.refusal("out of patience") if turn.number == 3 else answer


# What is no request for tokens.


def _cached_all_the_same(request: Body) -> Body:
    return {**request, "cache_prompt": True}


def _one_more_predicted(fleet: Fleet, path: str, answer: Answer) -> Answer:
    if path != "/metrics":
        return answer
    name = b"\nllamacpp:tokens_predicted_total "
    before, after = answer.content.split(name)
    count, rest = after.split(b"\n", 1)
    return replace(answer, content=before + name + b"%d\n" % (int(count) + 1) + rest)


def _erase_when_looked_at(fleet: Fleet, path: str, answer: Answer) -> Answer:
    if path in ("/slots", "/metrics"):
        for slot in range(fleet.line.parallel):
            fleet.first.slot(slot, "erase")
    return answer


# Servers.


def _slot_files(line: CommandLine) -> CommandLine:
    return line.replaced("--slot-save-path", ".")


def _similar_slots(line: CommandLine) -> CommandLine:
    return line.without("--slot-prompt-similarity")


def _no_slot_is_similar(line: CommandLine) -> CommandLine:
    """Then a slot that is asked for is neither saved nor looked up for."""
    return line.replaced("--slot-prompt-similarity", "0")


def _no_prompt_cache(line: CommandLine) -> CommandLine:
    return line.replaced("--cache-ram", "0")


def _erase_every_slot(fleet: Fleet, turn: Turn) -> None:
    for server in fleet.running():
        for slot in range(turn.slots):
            server.slot(slot, "erase")


def _bring_the_last_state(server: RealServer, turn: Turn) -> None:
    """The state of the last request, whatever it was computed under, comes into the slot."""
    if turn.last is not None and turn.last is not server:
        turn.last.slot(0, "save", "state")
        server.slot(0, "restore", "state")


def _kill_at_the_third(server: RealServer, turn: Turn) -> None:
    if turn.number == 3:
        server.kill()


NONE = "none"

FAULTS: Mapping[str, Fault] = {
    NONE: Fault(),
    "drops_lora": Fault(request=_without_lora),
    "changes_scale": Fault(request=_other_scale),
    "strips_id_slot": Fault(request=_without_id_slot),
    "swaps_slots": Fault(request=_other_slot),
    "claims_more": Fault(reply=_all_reused),
    "claims_less": Fault(reply=_none_reused),
    "miscounts": Fault(reply=_one_too_many),
    "answers_another": Fault(reply=_answer_of_the_request_before),
    "rewrites_text": Fault(reply=_other_text),
    "erases_between_turns": Fault(command_line=_slot_files, after=_erase_every_slot),
    "no_prompt_cache": Fault(command_line=_no_prompt_cache),
    "pins_past_the_cache": Fault(command_line=_no_slot_is_similar),
    "carries_state_over": Fault(command_line=_slot_files, before=_bring_the_last_state),
    "ignores_adapters_in_cache": Fault(one_server=True),
    "moves_states": Fault(moves_states=True),
    "kills_at_the_third": Fault(before=_kill_at_the_third),
    "hangs": Fault(reply=_none_to_the_third),
    "refuses": Fault(reply=_refusal_of_the_third),
    "looks_in_the_slot_only": Fault(command_line=_similar_slots),
    "embeds_in_the_slot": Fault(embeds_aside=False),
    "erases_when_looked_at": Fault(command_line=_slot_files, other=_erase_when_looked_at),
    "reuses_uncached": Fault(uncached=_cached_all_the_same),
    "usage_disagrees": Fault(reply=_one_too_many_in_usage),
    "streams_claim_less": Fault(reply=_none_reused_in_streams),
    "metrics_disagree": Fault(other=_one_more_predicted),
    "restores_nothing": Fault(slot_files=faulty.RestoresNothing),
    "restores_next_door": Fault(slot_files=faulty.RestoresNextDoor),
    "empties_other_slots": Fault(slot_files=faulty.EmptiesOtherSlots),
    "saves_what_is_there": Fault(slot_files=faulty.SavesWhatIsThere),
    "files_without_adapters": Fault(slot_files=faulty.WithoutAdapters),
    "files_without_checksum": Fault(slot_files=faulty.WithoutChecksum),
    "empties_when_refusing": Fault(slot_files=faulty.EmptiesWhenRefusing),
    "poisons_when_refusing": Fault(slot_files=faulty.PoisonsWhenRefusing),
    "misreports_saves": Fault(slot_files=faulty.MisreportsSaves),
    "dies_when_refusing": Fault(slot_files=faulty.DiesWhenRefusing),
    "accepts_any_file": Fault(slot_files=faulty.AcceptsAnyFile),
    "misreports_files": Fault(slot_files=faulty.Misreports),
}
"""Every fault by its name.

`ignores_adapters_in_cache`, `looks_in_the_slot_only`, `embeds_in_the_slot`, `moves_states` and
`pins_past_the_cache` are the real server's own behaviour.
"""
