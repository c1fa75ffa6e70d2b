from __future__ import annotations

import pytest

from harness.builds.how_far import how_far


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("[12/80] Building CXX object a.o\n[40/80] Building CXX object b.o\n", "50 %"),  # ninja
        ("[ 45%] Building CXX object a.o\n", "45 %"),  # make
        ("[100%] Linking CXX executable bin/llama-server\n", "100 %"),
        (
            "remote: Counting objects: 100% (9/9), done.\rReceiving objects:  45% (9/20), 1.2 MiB",
            "receiving objects 45 %",
        ),
        ("Resolving deltas:   7% (1/14)\rResolving deltas:  14% (2/14)\r", "resolving deltas 14 %"),
        ("Collecting x\nProgress 0 of 400\nProgress 100 of 400\n", "25 %"),  # pip
    ],
)
def test_the_last_statement_counts(output: str, said: str) -> None:
    assert str(how_far(output)) == said


@pytest.mark.parametrize(
    "output",
    [
        "",
        "-- Configuring done\n",
        "[0/0] nothing\n",
        "[9/3] more than all\n",
        "Progress 123 of 0\n",  # pip does not know the size
        # What is being written just now:
        "[12/8",
        "Progress 123 of 45",
        "Receiving objects:  4",
        # What a source file quotes:
        "warning: see [1/2] and [ 45%] there\n",
    ],
)
def test_what_says_nothing_of_it(output: str) -> None:
    assert how_far(output) is None
