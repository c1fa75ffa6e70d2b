"""What the server says of its work is true, and the plainest reuse is exact.

Every reply's numbers are checked against each other in all scenarios. Here are the requests and
routes that others do without: `cache_prompt: false`, streams, `usage`, `/metrics`, and prompts that
share a beginning of a known length.
"""

from __future__ import annotations

import pytest

from harness.expect import Claim
from harness.history import common_prefix
from harness.prompts import Prompt, Route, prose
from tests.cache.conftest import Start

pytestmark = [pytest.mark.one_a_memory]

P, Q = prose("P", 400), prose("Q", 400)
TAIL = " and then?"

EVERY_ROUTE = pytest.mark.routes(*Route)


@EVERY_ROUTE
def test_identical_request(start: Start) -> None:
    """All but one token is reused: the last is read again, to have something to predict from."""
    with start() as s:
        s.ask("P", P)
        s.ask("P again", P, reuse=Claim.PROMISED)


@EVERY_ROUTE
def test_not_to_be_cached(start: Start) -> None:
    """`cache_prompt: false` reuses nothing of what is there, and leaves something to reuse."""
    with start() as s:
        s.ask("P", P)
        s.ask("P, not cached", P, cache_prompt=False)
        s.ask("P again", P, reuse=Claim.PROMISED)


@pytest.mark.parametrize("where", ["front", "middle", "end"])
def test_changed_token(start: Start, where: str) -> None:
    """Exactly what stands before the change is kept: a date in a system prompt, an edited turn."""
    at = {"front": 20, "middle": 200, "end": 398}[where]
    changed = Prompt((P.text[:at] + "?" + P.text[at + 1 :],))
    with start() as s:
        kept = common_prefix(s.tokens(P), s.tokens(changed))
        s.require(0 < kept < len(s.tokens(P)) - 1, "texts that differ in the middle")
        # Pinned: with so short a common prefix the server may pick another slot.
        s.ask("P", P, slot=0)
        s.ask("changed", changed, slot=0, reuse=Claim.PROMISED)


@EVERY_ROUTE
def test_streams(start: Start) -> None:
    """A reply that comes in pieces has the numbers, and the words, of one that comes at once."""
    with start() as s:
        answer = s.ask("P", P, stream=True)
        turn = P.then(answer.text, TAIL)
        s.ask("P, next turn", turn, stream=True, reuse=Claim.PROMISED)
        s.ask("the same at once", turn, reuse=Claim.PROMISED)
        s.ask("not cached", turn, stream=True, cache_prompt=False)


@EVERY_ROUTE
def test_metrics(start: Start) -> None:
    """The counters are the sums over all replies, of any kind."""
    with start(metrics=True) as s:
        s.check_metrics("metrics at first")
        answer = s.ask("P", P)
        s.ask("Q", Q, stream=True)
        s.check_metrics("metrics after two")
        s.ask("P, next turn", P.then(answer.text, TAIL), reuse=Claim.PROMISED)
        s.ask("Q, not cached", Q, cache_prompt=False)
        s.ask("Q again", Q, n_predict=1, reuse=Claim.PROMISED)
        s.check_metrics("metrics at the end")
