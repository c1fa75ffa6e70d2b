from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from harness.builds.base import NotHere
from harness.builds.command import Runner
from harness.builds.ref import CommitRef, MasterRef, NumberRef, PullRef
from harness.builds.steps import Steps
from harness.builds.store import Store
from harness.builds.upstream import UPSTREAM_VARIABLE, Commit, Upstream
from harness.errors import UsageProblem
from harness.server.guard import Guard
from tests.harness.builds.fake_upstream import BROKEN, RIGHT, FakeUpstream

QUIET = Steps("test", None)


@pytest.fixture
def upstream(store: Store, environ: Mapping[str, str]) -> Iterator[Upstream]:
    with Guard() as guard:
        yield Upstream(store, Runner(guard=guard, log=store.root / "log"), environ)


def test_each_kind_of_ref(upstream: Upstream, fake_upstream: FakeUpstream) -> None:
    first, second = fake_upstream.commit(), fake_upstream.commit(BROKEN)
    head = fake_upstream.pull_request(7)
    assert upstream.resolve(NumberRef(2), QUIET) == Commit(second, 2)
    assert upstream.resolve(MasterRef(), QUIET) == Commit(second, 2)
    assert upstream.resolve(MasterRef(1), QUIET) == Commit(first, 1)
    assert upstream.resolve(CommitRef(first[:9]), QUIET) == Commit(first, 1)
    # It is on no main branch, so that upstream has no number for it.
    assert upstream.resolve(PullRef(7), QUIET) == Commit(head, None)
    assert upstream.resolve(PullRef(7, head[:8]), QUIET) == Commit(head, None)
    assert upstream.resolve(CommitRef(head), QUIET) == Commit(head, None)


def test_master_is_what_it_is_now(upstream: Upstream, fake_upstream: FakeUpstream) -> None:
    for change in (RIGHT, BROKEN):
        head = fake_upstream.commit(change)
        assert upstream.resolve(MasterRef(), QUIET).name == head


def test_pull_request_that_moved_is_held_by_its_commit(
    upstream: Upstream, fake_upstream: FakeUpstream
) -> None:
    fake_upstream.commit()
    before = fake_upstream.pull_request(7)
    after = fake_upstream.pull_request(7, BROKEN)
    assert upstream.resolve(PullRef(7), QUIET).name == after
    with pytest.raises(NotHere, match="no commit") as refusal:
        upstream.resolve(PullRef(7, before[:8]), QUIET)
    assert "all 40 digits" in refusal.value.hint
    assert upstream.resolve(PullRef(7, before), QUIET).name == before


def test_commit_that_is_known_needs_no_repository(
    upstream: Upstream, store: Store, fake_upstream: FakeUpstream
) -> None:
    name = fake_upstream.commit()
    upstream.resolve(MasterRef(), QUIET)
    fake_upstream.path.rename(fake_upstream.path.with_name("gone"))
    assert upstream.resolve(CommitRef(name[:8]), QUIET).name == name


def test_what_is_not_there(upstream: Upstream, fake_upstream: FakeUpstream) -> None:
    fake_upstream.commit()
    for ref in (NumberRef(9), PullRef(9), CommitRef("abcdef0"), CommitRef("a" * 40)):
        with pytest.raises(NotHere, match="has no ") as refusal:
            upstream.resolve(ref, QUIET)
        assert not refusal.value.trouble
    with pytest.raises(UsageProblem, match="before the beginning"):
        upstream.resolve(MasterRef(5), QUIET)


def test_numbers_are_those_of_all_tags(upstream: Upstream, fake_upstream: FakeUpstream) -> None:
    """Also of those that the mirror does not have."""
    fake_upstream.commit()
    fake_upstream.commit()
    fake_upstream.commit(tag=False)
    for other in ("b3-rc1", "gguf-v0.1", "b1234567"):
        fake_upstream.git("tag", other)
    fake_upstream.git("tag", "--annotate", "-m", "nine", "b9")
    assert upstream.numbers(QUIET) == {1, 2, 9}


def test_short_commit_that_is_two(upstream: Upstream, fake_upstream: FakeUpstream) -> None:
    fake_upstream.commit()
    one, other = fake_upstream.twins(7, 8)
    assert one[:7] == other[:7]
    assert upstream.resolve(PullRef(7), QUIET).name == one
    assert upstream.resolve(CommitRef(one[:7]), QUIET).name == one  # the only one it knows
    assert upstream.resolve(PullRef(8), QUIET).name == other
    with pytest.raises(UsageProblem, match=f"{one[:7]} is ambiguous: ") as problem:
        upstream.resolve(CommitRef(one[:7]), QUIET)
    assert one[:12] in problem.value.message
    assert other[:12] in problem.value.message
    assert upstream.resolve(CommitRef(other), QUIET).name == other


def test_nobody_answers(store: Store, dead: str) -> None:
    with Guard() as guard:
        runner = Runner(guard=guard, log=store.root / "log")
        environ = {UPSTREAM_VARIABLE: f"http://name:secret@{dead.removeprefix('http://')}/x/y"}
        with pytest.raises(NotHere, match="cannot be reached") as refusal:
            Upstream(store, runner, environ).resolve(MasterRef(), QUIET)
    assert refusal.value.trouble
    assert "secret" not in refusal.value.reason


def test_numbers_that_nobody_tells(store: Store, dead: str) -> None:
    with Guard() as guard:
        runner = Runner(guard=guard, log=store.root / "log")
        upstream = Upstream(store, runner, {UPSTREAM_VARIABLE: f"{dead}/x.git"})
        with pytest.raises(NotHere, match="cannot be reached") as refusal:
            upstream.numbers(QUIET)
    assert refusal.value.trouble


def test_git_that_was_killed_leaves_locks_behind(
    upstream: Upstream, store: Store, fake_upstream: FakeUpstream
) -> None:
    fake_upstream.commit()
    upstream.resolve(MasterRef(), QUIET)
    (mirror,) = store.root.glob("mirror-*.git")
    for name in ("packed-refs.lock", "config.lock", "shallow.lock", "refs/heads/master.lock"):
        (mirror / name).parent.mkdir(parents=True, exist_ok=True)
        (mirror / name).touch()
    head = fake_upstream.commit(BROKEN)
    assert upstream.resolve(MasterRef(), QUIET).name == head


def test_contents_come_when_they_are_checked_out(
    upstream: Upstream, store: Store, fake_upstream: FakeUpstream
) -> None:
    name = fake_upstream.commit("// one")
    fake_upstream.commit("// two")
    upstream.resolve(MasterRef(), QUIET)
    (mirror,) = store.root.glob("mirror-*.git")
    packs = sum(path.stat().st_size for path in mirror.rglob("*.pack"))
    tree = store.root / "tree"
    upstream.check_out(name, tree, QUIET)
    assert "// one" in (tree / "server.cpp").read_text()
    after = sum(path.stat().st_size for path in mirror.rglob("*.pack"))
    assert after > packs


def _newest_pack(mirror: Path) -> Path:
    return max(mirror.rglob("*.pack"), key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize("part", ["contents", "branch", "head", "config"])
def test_damaged_mirror_is_made_again(
    upstream: Upstream, store: Store, fake_upstream: FakeUpstream, part: str
) -> None:
    """What was written last is empty, as after a power cut."""
    name = fake_upstream.commit("// one")
    upstream.resolve(MasterRef(), QUIET)
    upstream.check_out(name, store.root / "tree", QUIET)
    (mirror,) = store.root.glob("mirror-*.git")
    files = {"branch": "refs/heads/master", "head": "HEAD", "config": "config"}
    damaged = _newest_pack(mirror) if part == "contents" else mirror / files[part]
    damaged.chmod(0o644)
    damaged.write_bytes(b"")
    later = fake_upstream.commit("// two")
    assert upstream.resolve(MasterRef(), QUIET) == Commit(later, 2)
    assert upstream.resolve(CommitRef(name), QUIET) == Commit(name, 1)
    tree = store.root / "another"
    upstream.check_out(name, tree, QUIET)
    assert "// one" in (tree / "server.cpp").read_text()
