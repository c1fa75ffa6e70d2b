"""The adapters a state was computed under: the key that decides what may be reused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """The adapters in force and their scales; an adapter at scale 0 is not in force."""

    scales: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, scales: Mapping[str, float]) -> Setting:
        """The setting of adapter letters and their scales."""
        return cls(tuple(sorted((name, float(s)) for name, s in scales.items() if s != 0)))

    def as_dict(self) -> dict[str, float]:
        """Scales by adapter letter, without those at 0."""
        return dict(self.scales)

    def __str__(self) -> str:
        return " + ".join(f"{name} at {scale:g}" for name, scale in self.scales) or "no adapter"
