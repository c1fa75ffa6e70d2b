from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from harness.builds.base import UPSTREAM, Flavour, Wanted
from harness.builds.ref import CommitRef, NumberRef
from harness.builds.store import GIB, LIMIT_VARIABLE, Entry, Facts, Store, held, limit_bytes
from harness.errors import NotObtained, UsageProblem
from harness.files import sha256_of

COMMIT = "7e4c0a9" + "0" * 33
OTHER = "7e4c0a9" + "1" * 33


def added(
    store: Store,
    *,
    commit: str | None = COMMIT,
    number: int | None = 10434,
    flavours: tuple[str, ...] = ("cpu",),
    rung: str = "source",
    content: str = "a server",
    age: float = 0.0,
) -> Entry:
    with store.filling() as directory:
        binary = directory / "llama-server"
        library = directory / "libllama.so"
        binary.write_text(content)
        library.write_text("library")
        binary.chmod(0o755)
        facts = Facts(
            commit=commit,
            number=number,
            flavours=flavours,
            rung=rung,
            source="somewhere",
            binary="llama-server",
            repository=UPSTREAM,
            files={file.name: sha256_of(file) for file in (binary, library)},
            size=len(content),
            version="version: 1",
        )
        entry = store.add(directory, facts)
    store.close()  # nobody is using it
    then = time.time() - age
    os.utime(entry.directory / "build.json", (then, then))
    return entry


def by_number(number: int, flavour: Flavour = Flavour.CPU) -> Wanted:
    return Wanted(ref=NumberRef(number), number=number, flavour=flavour)


def by_commit(commit: str) -> Wanted:
    return Wanted(ref=CommitRef(commit), commit=commit)


def test_what_was_added_is_found_by_commit_and_by_number(tmp_path: Path) -> None:
    entry = added(Store(tmp_path))
    store = Store(tmp_path)
    for wanted in (by_commit(COMMIT), by_commit("7e4c0a9"), by_number(10434)):
        found = store.find(wanted)
        assert found is not None
        assert found.binary == entry.binary
        assert found.binary.read_text() == "a server"


def test_what_is_something_else_is_not_found(tmp_path: Path) -> None:
    store = Store(tmp_path)
    added(store)
    assert store.find(by_commit(OTHER)) is None
    assert store.find(by_number(10435)) is None
    assert store.find(by_number(10434, Flavour.CUDA)) is None
    assert store.find(by_number(10434), rung="sdist") is None


def test_commit_is_a_better_name_than_a_number(tmp_path: Path) -> None:
    """A fork may count as far as upstream does."""
    store = Store(tmp_path)
    added(store)
    wanted = Wanted(ref=CommitRef(OTHER), commit=OTHER, number=10434)
    assert store.find(wanted) is None


def test_short_commit_of_two_builds_is_ambiguous(tmp_path: Path) -> None:
    store = Store(tmp_path)
    added(store)
    added(store, commit=OTHER)
    with pytest.raises(UsageProblem, match=r"7e4c0a9 is ambiguous: .*0000, .*1111"):
        store.find(by_commit("7e4c0a9"))
    assert store.find(by_commit(OTHER)) is not None


def test_one_commit_is_not_ambiguous_however_it_is_written(tmp_path: Path) -> None:
    """A wheel knows seven digits of it, a release all, and an sdist none."""
    store = Store(tmp_path)
    added(store, commit="7e4c0a9", rung="wheel")
    added(store, rung="release")
    added(store, commit=None, rung="sdist")
    wanted = Wanted(ref=CommitRef(COMMIT), commit=COMMIT, number=10434)
    for one in (by_commit("7e4c0a9"), wanted):
        assert store.find(one) is not None


def test_number_of_another_repository_is_another_build(tmp_path: Path) -> None:
    store = Store(tmp_path)
    added(store, commit=None)
    theirs = Wanted(ref=NumberRef(10434), number=10434, repository="https://example.org/fork")
    assert store.find(theirs) is None


def test_two_places_may_have_one_build(tmp_path: Path) -> None:
    store = Store(tmp_path)
    added(store, rung="wheel", content="one")
    added(store, rung="source", content="other")
    found = store.find(by_number(10434), rung="wheel")
    assert found is not None
    assert found.binary.read_text() == "one"


@pytest.mark.parametrize("damage", ["binary", "library", "facts", "missing"])
def test_damaged_build_is_not_there(tmp_path: Path, damage: str) -> None:
    entry = added(Store(tmp_path))
    if damage == "binary":
        entry.binary.write_text("b server")  # as long as before
    elif damage == "library":
        (entry.directory / "libllama.so").write_text("LIBRARY")
    elif damage == "facts":
        (entry.directory / "build.json").write_text("{}")
    else:
        entry.binary.unlink()
    store = Store(tmp_path)
    assert store.find(by_number(10434)) is None
    again = added(store)
    found = store.find(by_number(10434))
    assert found is not None
    assert found.directory == again.directory


def test_build_of_another_version_of_the_harness_is_not_there(tmp_path: Path) -> None:
    entry = added(Store(tmp_path))
    facts = json.loads((entry.directory / "build.json").read_text())
    (entry.directory / "build.json").write_text(json.dumps({**facts, "schema": 99}))
    assert Store(tmp_path).find(by_number(10434)) is None


def test_what_is_not_added_is_gone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(RuntimeError), store.filling() as directory:
        (directory / "half").write_text("half")
        raise RuntimeError
    assert not directory.exists()
    assert store.entries() == []


KILLED = """\
    import sys
    from pathlib import Path
    from harness.builds.store import Store

    with Store(Path(sys.argv[1])).filling() as directory:
        (directory / "llama-server").write_text("half of one")
        print(directory, flush=True)
        sys.stdin.read()
    """


def test_what_a_killed_process_left_is_swept_and_what_a_living_one_fills_is_not(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", dedent(KILLED), str(tmp_path)]
    filling = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        places = [Path((process.stdout or sys.stdin).readline().strip()) for process in filling]
        assert all(place.is_dir() for place in places)
        filling[0].send_signal(signal.SIGKILL)
        filling[0].wait()
        assert places[0].is_dir()
        added(Store(tmp_path))
        assert not places[0].exists()
        assert (places[1] / "llama-server").exists()
    finally:
        for process in filling:
            process.kill()
            process.communicate()
    assert [entry.facts.number for entry in Store(tmp_path).entries()] == [10434]


def test_used_last_is_removed_last(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number, age in ((1, 20_000.0), (2, 30_000.0), (3, 10_000.0)):
        added(store, commit=None, number=number, content="x" * 100, age=age)
    removed = store.prune(250)
    assert [entry.facts.number for entry in removed] == [2]
    assert [entry.facts.number for entry in store.entries()] == [3, 1]


def test_what_was_used_just_now_is_not_removed(tmp_path: Path) -> None:
    added(Store(tmp_path), content="x" * 100)
    assert Store(tmp_path).prune(0) == []
    assert [entry.facts.size for entry in Store(tmp_path).prune(0, recent=0.0)] == [100]


def test_what_is_no_build_is_cleaned_away(tmp_path: Path) -> None:
    entry = added(Store(tmp_path))
    for left in ("store/unreadable", "source/llama.cpp", "downloads"):
        (tmp_path / left).mkdir(parents=True)
    (tmp_path / "downloads" / "key.part").touch()
    Store(tmp_path).clean()
    assert [path.name for path in (tmp_path / "store").iterdir()] == [entry.directory.name]
    assert not (tmp_path / "source").exists()
    assert not (tmp_path / "downloads" / "key.part").exists()


def test_path_that_was_printed_is_held_too(tmp_path: Path) -> None:
    """By whoever was given it, as `pytest --llama-bin` is."""
    entry = added(Store(tmp_path))
    facts = held(entry.binary)
    assert facts is not None
    assert facts.number == 10434
    assert Store(tmp_path).prune(0, recent=0.0) == []
    assert held(tmp_path / "llama-server") is None


def test_what_another_version_uses_is_not_cleaned_away(tmp_path: Path) -> None:
    entry = added(Store(tmp_path))
    user = Store(tmp_path)
    assert user.hold(entry)
    facts = json.loads((entry.directory / "build.json").read_text())
    (entry.directory / "build.json").write_text(json.dumps({**facts, "schema": 99}))
    Store(tmp_path).clean()
    assert entry.binary.exists()
    user.close()
    Store(tmp_path).clean()
    assert not entry.binary.exists()


HOLDING = """\
    import sys
    from pathlib import Path
    from harness.builds.base import Wanted
    from harness.builds.ref import NumberRef
    from harness.builds.store import Store

    store = Store(Path(sys.argv[1]))
    print(store.find(Wanted(ref=NumberRef(10434), number=10434)) is not None, flush=True)
    sys.stdin.read()
    """


def test_what_a_process_uses_stays_as_long_as_it_lives(tmp_path: Path) -> None:
    added(Store(tmp_path))
    command = [sys.executable, "-c", dedent(HOLDING), str(tmp_path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert Store(tmp_path).prune(0, recent=0.0) == []
    finally:
        holder.kill()
        holder.communicate()
    assert len(Store(tmp_path).prune(0, recent=0.0)) == 1


def test_full_disk_is_said_in_one_line(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(NotObtained, match=r"the disk of .* is full") as problem, store.filling():
        raise OSError(28, "No space left on device")
    assert "builds prune" in problem.value.hint
    assert list((tmp_path / "filling").iterdir()) == []


def test_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageProblem, match="cannot be kept"), Store(tmp_path / "file").filling():
        pass


def test_limit() -> None:
    assert limit_bytes({}) == 20 * GIB
    assert limit_bytes({LIMIT_VARIABLE: "0.5"}) == GIB // 2
    for wrong in ("much", "-1", "nan"):
        with pytest.raises(UsageProblem, match=LIMIT_VARIABLE):
            limit_bytes({LIMIT_VARIABLE: wrong})
