"""The builds nearest to a number that no place has, and what is said of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from harness.builds.nearest import Offer, in_words, nearest


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ({}, []),
        ({"wheel": []}, []),
        ({"wheel": [10434, 10068], "sdist": [10429, 10435]}, ["b10429 (sdist)", "b10434 (wheel)"]),
        ({"wheel": [10434], "sdist": [10434]}, ["b10434 (wheel)"]),
        ({"source": [1, 2, 3]}, ["b3 (source)"]),
        ({"release": [10429], "source": [10429, 10431]}, ["b10429 (release)", "b10431 (source)"]),
    ],
)
def test_one_below_and_one_above(places: Mapping[str, Collection[int]], found: list[str]) -> None:
    assert [str(offer) for offer in nearest(10430, places)] == found


@pytest.mark.parametrize(
    ("offer", "ref"),
    [
        (Offer(10434, "wheel"), "wheel:0.10434.0"),
        (Offer(10434, "sdist"), "sdist:b10434"),
        (Offer(10434, "release"), "b10434"),
        (Offer(10434, "source"), "b10434"),
    ],
)
def test_how_an_offer_is_named(offer: Offer, ref: str) -> None:
    assert str(offer.ref) == ref


def test_in_words() -> None:
    two = (Offer(10429, "sdist"), Offer(10434, "wheel"))
    both = "nearest are b10429 (sdist), b10434 (wheel): llama-harness get "
    assert in_words(10430, two) == f"{both}sdist:b10429"
    assert in_words(10433, two) == f"{both}wheel:0.10434.0"
    assert in_words(10433, two, " --flavour vulkan").endswith("wheel:0.10434.0 --flavour vulkan")
    assert in_words(1, two[1:]) == "nearest is b10434 (wheel): llama-harness get wheel:0.10434.0"
    assert in_words(1, ()) == ""
