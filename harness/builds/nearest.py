"""Finds the build numbers nearest to one that no place has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from harness.builds.ref import NumberRef, Ref, SdistRef, WheelRef


@dataclass(frozen=True, slots=True)
class Offer:
    """A build that a place has."""

    number: int
    place: str

    @property
    def ref(self) -> Ref:
        """Name the build as one of this place, where refs can say that."""
        if self.place == "wheel":
            return WheelRef(f"0.{self.number}.0")
        return SdistRef(self.number) if self.place == "sdist" else NumberRef(self.number)

    def __str__(self) -> str:
        return f"b{self.number} ({self.place})"


def nearest(number: int, places: Mapping[str, Collection[int]]) -> tuple[Offer, ...]:
    """Return the nearest build below a number and the nearest above, where there are such.

    `places` are in order: of two that have the same build, the first is named.
    """
    offers = [Offer(there, place) for place, has in places.items() for there in has]
    below = [offer for offer in offers if offer.number < number]
    above = [offer for offer in offers if offer.number > number]
    found = []
    if below:
        found.append(max(below, key=lambda offer: offer.number))
    if above:
        found.append(min(above, key=lambda offer: offer.number))
    return tuple(found)


def in_words(number: int, offers: tuple[Offer, ...], options: str = "") -> str:
    """Say which builds are nearest, and what obtains the nearer one. Empty without an offer.

    `options` are those of the command that obtains it, after a space.
    """
    if not offers:
        return ""
    nearer = min(offers, key=lambda offer: abs(offer.number - number))
    are = "nearest are" if len(offers) > 1 else "nearest is"
    return f"{are} {', '.join(map(str, offers))}: llama-harness get {nearer.ref}{options}"
