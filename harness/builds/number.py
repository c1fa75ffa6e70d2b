"""Finds the build number of a binary that a person names by its path, from where it lies."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.builds.base import NotHere
from harness.builds.command import Result, Runner
from harness.builds.origin import WHEEL
from harness.builds.store import same_commit
from harness.builds.wheel import COMMITS
from harness.server.capabilities import FIRST_NUMBER
from harness.server.guard import Guard

_FOLDER = re.compile(r"(?:llama-)?b(\d{1,6})(?:-bin-[\w.-]+)?")
"""What a release is unpacked into: `llama-b10434-bin-ubuntu-x64`, `llama-b10434`, `b10434`."""
_NEAREST = 4
"""How many folders above a binary may name its release: `b10434/build/bin/Release` is the most."""
_TREE = ("include/llama.h", "ggml")
"""What tells a work tree of llama.cpp from one of another project that a build lies in."""
_GIT_SECONDS = 10.0


def number_by_place(binary: Path, commit: str | None, guard: Guard) -> int | None:
    """Find the number of a binary that does not say a believable one; None where nothing tells.

    `commit` is the one that the binary says. A place that contradicts the commit is not believed.
    """
    for wheel, known in COMMITS.items():
        if commit and same_commit(commit, known):
            return wheel
    places = list(dict.fromkeys((binary.resolve(), binary)))
    for place in places:
        for number in (_of_wheel(place), _of_git(place, commit, guard), _of_folders(place)):
            if number is not None and _is_possible(number, commit):
                return number
    return None


def _is_possible(number: int, commit: str | None) -> bool:
    """Tell whether a build of this number may have a commit, which is none of the wheels'."""
    return number >= FIRST_NUMBER and not (commit and number in COMMITS)


def _of_wheel(binary: Path) -> int | None:
    """Read the version of the wheel, installed or unpacked, whose package has this binary."""
    package = WHEEL.replace("-", "_")
    if binary.parent.name != "bin" or binary.parent.parent.name != package:
        return None
    infos = binary.parents[2].glob(f"{package}-*.dist-info")
    numbers = {
        int(match[1]) for info in infos if (match := re.search(r"-0\.(\d+)\.\d+\.", info.name))
    }
    return numbers.pop() if len(numbers) == 1 else None


def _of_folders(binary: Path) -> int | None:
    """Read the number that the nearest folders name, unless two of them name different ones."""
    nearest = list(binary.parents)[:_NEAREST]
    numbers = {int(match[1]) for folder in nearest if (match := _FOLDER.fullmatch(folder.name))}
    return numbers.pop() if len(numbers) == 1 else None


def _of_git(binary: Path, commit: str | None, guard: Guard) -> int | None:
    """Ask git for the number of the work tree of llama.cpp that a binary was built in.

    The tree has to be at the commit that the binary says.
    """
    tree = next((folder for folder in binary.parents if (folder / ".git").exists()), None)
    if tree is None or not all((tree / name).exists() for name in _TREE):
        return None
    try:
        return next(_git_numbers(tree, commit, guard), None)
    except NotHere:  # there is no git, or it hangs
        return None


def _git_numbers(tree: Path, commit: str | None, guard: Guard) -> Iterator[int]:
    """Yield what the tag of the tree's commit says, and the length of its history if whole."""
    with TemporaryDirectory() as directory:
        # A repository around this one is not meant, should this one be damaged.
        environ = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
        runner = Runner(guard=guard, log=Path(directory) / "log", environ=environ)

        def git(*words: str) -> Result:
            return runner.run("git", "-C", tree, *words, seconds=_GIT_SECONDS)

        head = git("rev-parse", "--verify", "--quiet", "HEAD")
        if not head.ok or (commit and not same_commit(head.last_line, commit)):
            return
        tag = git("describe", "--tags", "--exact-match", "--match", "b[0-9]*", "HEAD")
        if tag.ok and (match := re.fullmatch(r"b(\d{1,6})", tag.last_line)):
            yield int(match[1])
        if git("rev-parse", "--is-shallow-repository").last_line == "false":
            count = git("rev-list", "--count", "HEAD")
            if count.ok:
                yield int(count.last_line)
