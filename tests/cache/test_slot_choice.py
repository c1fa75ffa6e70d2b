"""What a conversation finds again must not depend on how its slot was chosen.

A request may ask for a slot (`id_slot`), as clients do that give each conversation one of its own;
the host-RAM prompt cache is there for it as for any other (upstream #24746).
"""

from __future__ import annotations

import pytest

from harness.expect import Claim
from harness.prompts import FOX, GLASS
from tests.cache.conftest import Start

pytestmark = [pytest.mark.one_a_memory]  # it is about which slot is used


def test_pinned_slot_looks_in_the_prompt_cache(start: Start) -> None:
    """Two texts in turn in one slot, which is asked for: the first one comes back."""
    with start() as s:
        s.ask("P", GLASS, slot=0)
        s.ask("Q", FOX, slot=0)
        s.ask("P again", GLASS, slot=0, reuse=Claim.PROMISED)
