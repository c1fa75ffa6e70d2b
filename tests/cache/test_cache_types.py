"""K and V of other types, and flash attention: the same reuse, within another tolerance.

What a state is written to a slot file or to the prompt cache as depends on its types, and on
whether V is transposed, which it is without flash attention only. Where text is cut out of a
prompt, `--cache-reuse` rotates the K behind the cut, which needs code for its type (upstream
#25636).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.expect import Claim
from harness.memory import Memory
from harness.prompts import Route, prose
from tests.cache.conftest import Start

if TYPE_CHECKING:
    from harness.server.config import ConfigFields

# The state of a recurrent layer has one type, and no attention.
pytestmark = [
    pytest.mark.alone,
    pytest.mark.one_a_kind,
    pytest.mark.memory(Memory.DENSE, Memory.SWA, Memory.HYBRID),
    pytest.mark.routes(Route.COMPLETION),
]

NUMBERS: Mapping[str, ConfigFields] = {
    "fa_on": {"flash_attn": "on"},
    "fa_auto": {"flash_attn": "auto"},
    "q8_0": {"flash_attn": "on", "cache_type_k": "q8_0", "cache_type_v": "q8_0"},
    "q4_0": {"flash_attn": "on", "cache_type_k": "q4_0", "cache_type_v": "q4_0"},
    "f32": {"flash_attn": "off", "cache_type_k": "f32", "cache_type_v": "f32"},
    "bf16": {"flash_attn": "on", "cache_type_k": "bf16", "cache_type_v": "bf16"},
}

P, Q = prose("P", 400), prose("Q", 400)
TAIL = " and then?"

# By type rather than by test, so that a tolerance is measured once.
EACH = pytest.mark.parametrize("numbers", NUMBERS, scope="module")


@EACH
def test_through_the_prompt_cache(start: Start, numbers: str) -> None:
    """A conversation goes on after another one has had the slot, and in the middle of itself."""
    with start(**NUMBERS[numbers]) as s:
        answer = s.ask("P", P)
        s.ask("Q", Q)
        turn = P.then(answer.text, TAIL)
        s.ask("P, next turn", turn, reuse=Claim.PROMISED)
        s.ask("P, another end", turn + " or else?", reuse=Claim.PROMISED)


@EACH
def test_through_a_slot_file(start: Start, slot_directory: Path, numbers: str) -> None:
    """A conversation goes on in a new process."""
    fields: ConfigFields = {"cache_ram": 0, "slot_save_path": slot_directory, **NUMBERS[numbers]}
    with start(**fields) as s:
        answer = s.ask("P", P, slot=0)
        s.save("save", slot=0, file="p")
        s.restart()
        s.restore("restore", slot=0, file="p")
        s.ask("P, next turn", P.then(answer.text, TAIL), slot=0, reuse=Claim.PROMISED)


@pytest.mark.memory(Memory.DENSE, Memory.HYBRID)  # llama-server turns the flag off for a window
@EACH
def test_moved_text(start: Start, numbers: str) -> None:
    """`--cache-reuse` moves what stands behind a cut, and the server survives it.

    K is rotated to its new position, not computed again. The answer after the cut may therefore
    differ from a cold run's, and is not judged. The uncut text must be found again as it was.
    """
    head, middle, tail = prose("head", 100), prose("middle", 60).text, prose("tail", 150).text
    whole = head + middle + tail
    fields: ConfigFields = {"cache_reuse": 16, **NUMBERS[numbers]}
    with start(**fields) as s:
        s.ask("whole", whole, slot=0)
        s.ask("without its middle", head + tail, slot=0, reuse=Claim.UNJUDGED)
        answer = s.ask("whole again", whole, slot=0, reuse=Claim.PROMISED)
        turn = whole.then(answer.text, TAIL)
        s.ask("whole, next turn", turn, slot=0, reuse=Claim.PROMISED)
