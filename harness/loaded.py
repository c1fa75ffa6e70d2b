"""The adapters a server has loaded, and what a request says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.client import LoraField
from harness.oracle import CellOracle
from harness.setting import Setting


class NoField:
    """The `lora` field is left out of a request: the server-wide scales apply."""


NO_FIELD = NoField()

Lora = Mapping[str, float] | NoField
"""What a request says of its adapters: scales by letter, `{}` for `[]`, or NO_FIELD."""


@dataclass(slots=True)
class Loaded:
    """The adapters of one server, by letter, in the order of its command line."""

    from_start: Mapping[str, float]
    """The server-wide scales it starts with."""
    oracle: CellOracle | None
    """Of the model, which can tell some scales only."""
    _server_wide: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A new server has the scales from the start."""
        self._server_wide = dict(self.from_start)

    def set_server_wide(self, scales: Mapping[str, float]) -> None:
        """What holds from now on for requests that say nothing."""
        self._server_wide = dict(scales)

    def setting(self, lora: Lora) -> Setting:
        """The adapters in force. `ValueError` for scales that no cell tells."""
        setting = self._meant(lora)
        if self.oracle is not None:
            self.oracle.expected(setting.as_dict())
        return setting

    def _meant(self, lora: Lora) -> Setting:
        if isinstance(lora, NoField):
            return Setting.of(self._server_wide)
        if not lora:
            # Upstream reads `[]` as the field left out; others read "no adapter". Under
            # server-wide scales of 0 both are the same setting.
            assert not any(self._server_wide.values()), "`[]` means two things here"
            return Setting()
        self.check_whole(lora)
        return Setting.of(lora)

    def check_whole(self, scales: Mapping[str, float]) -> None:
        """A scenario states every adapter, or none."""
        assert scales.keys() == self.from_start.keys(), "state every loaded adapter"

    def field(self, lora: Lora) -> LoraField | None:
        """What is sent; None where nothing is. llama-server numbers adapters as they are loaded."""
        if isinstance(lora, NoField):
            return None
        return [(list(self.from_start).index(letter), scale) for letter, scale in lora.items()]
