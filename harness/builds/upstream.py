"""Upstream's repository: a mirror of its history, from which commits are told and checked out."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.builds.base import UPSTREAM, NotHere
from harness.builds.command import Result, Runner, installed
from harness.builds.ref import MASTER, CommitRef, MasterRef, NumberRef, PullRef, Ref
from harness.builds.steps import Steps
from harness.builds.store import Store
from harness.errors import UsageProblem
from harness.urls import without_credentials

UPSTREAM_VARIABLE = "LLAMA_HARNESS_UPSTREAM"
_ANSWER_SECONDS = 30.0
"""How long a repository may take to say what it has."""
_BRANCH = f"refs/heads/{MASTER}"
# A connection that has gone quiet is no connection; and nothing goes on in the background.
_SETTINGS = (
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60",
    "maintenance.auto=false",
    "gc.auto=0",
)
_CORRUPT = re.compile(
    r"object file .* is empty|loose object|bad object|is corrupt|packfile .* (cannot|does)"
    r"|reference broken|did not send all necessary objects|unable to read"
)
_GIT = ("git", *(word for setting in _SETTINGS for word in ("-c", setting)))
_NO = 1
"""How git says no; anything above is that it cannot tell."""
_WHOLE = 40
_TAG = re.compile(r"\srefs/tags/b([0-9]{1,6})$", re.MULTILINE)
_NAME = re.compile(r"^[0-9a-f]{40}$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of upstream's."""

    name: str
    """40 hex digits."""
    number: int | None
    """Upstream's build number: how many commits its main branch has up to this one."""


class Upstream:
    """A bare mirror without file contents, which come when a commit is checked out.

    Raises `NotHere` where it cannot be reached or has no such thing, `UsageProblem` for what is
    ambiguous.
    """

    def __init__(self, store: Store, runner: Runner, environ: Mapping[str, str]) -> None:
        self.url = _address(environ.get(UPSTREAM_VARIABLE) or UPSTREAM)
        self._store, self._runner = store, runner
        # Each has its own: tags of the same name are not the same commit.
        key = hashlib.sha256(self.url.encode()).hexdigest()[:12]
        self._mirror = store.root / f"mirror-{key}.git"
        self._master_is_new: bool | None = None
        self._asked = False
        """Whether it has answered since this was made."""

    @property
    def shown(self) -> str:
        """Its address as it may be shown."""
        return without_credentials(self.url)

    def resolve(self, ref: Ref, steps: Steps) -> Commit:
        """The commit that a ref stands for now."""
        with self._ours(steps):
            if isinstance(ref, NumberRef):
                name = self._tag(ref.number, steps)
            elif isinstance(ref, PullRef):
                name = self._pull(ref, steps)
            elif isinstance(ref, MasterRef):
                name = self._master(ref, steps)
            elif isinstance(ref, CommitRef):
                name = self._commit(ref.commit, steps) or self._asked_for(ref.commit, steps)
            else:
                raise NotHere(f"{ref} is no commit")
            if isinstance(ref, NumberRef):
                return Commit(name, ref.number)
            if not self._is_on_master(name):
                with suppress(NotHere):  # what was fetched last is what there is
                    self._fetch_master(steps)
            return Commit(name, self._number(name))

    def numbers(self, steps: Steps) -> frozenset[int]:
        """List the numbers that tags name now. The mirror has only tags that were asked for."""
        with self._ours(steps):
            words = ("ls-remote", "--tags", "--refs", "origin", "refs/tags/b*")
            result = self._git(*words, seconds=_ANSWER_SECONDS)
        if not result.ok:
            line = without_credentials(result.error)
            raise NotHere(f"{self.shown} cannot be reached: {line}", trouble=True)
        return frozenset(map(int, _TAG.findall(result.text)))

    def check_out(self, commit: str, tree: Path, steps: Steps) -> None:
        """Puts the files of a commit where there is nothing yet."""
        with self._ours(steps):
            with steps.step(f"checking out {commit[:12]}"):
                done = self._checked_out(commit, tree, steps)
            if not done.ok:  # it may be the network that failed
                self._asked = False
                self._check_answers()
                done = self._checked_out(commit, tree, steps)
            if done.ok:
                return
            self._remake()
            if not self._fetch(commit, steps=steps):
                self._fetch_master(steps)
            done = self._checked_out(commit, tree, steps)
            if not done.ok:
                line = without_credentials(done.error)
                raise NotHere(f"git worktree: {line}", trouble=True)

    def _checked_out(self, commit: str, tree: Path, steps: Steps) -> Result:
        """Fetches the contents, too."""
        shutil.rmtree(tree, ignore_errors=True)
        self._git("worktree", "prune")
        words = ("worktree", "add", "--force", "--detach", tree, commit)
        return self._git(*words, watch=steps.watch)

    def _tag(self, number: int, steps: Steps) -> str:
        tag = f"refs/tags/b{number}"
        known = self._parsed(tag) or (
            self._parsed(tag) if self._fetch(f"+{tag}:{tag}", steps=steps) else None
        )
        if known is None:
            raise NotHere(f"{self.shown} has no tag b{number}")
        return known

    def _pull(self, ref: PullRef, steps: Steps) -> str:
        head = f"refs/pull/{ref.number}/head"
        if ref.commit is not None and (known := self._commit(ref.commit, steps, fetch=False)):
            return known
        if not self._fetch(f"+{head}:{head}", steps=steps):
            raise NotHere(f"{self.shown} has no pull request {ref.number}")
        if ref.commit is None:
            return self._must("rev-parse", "--verify", f"{head}^{{commit}}").last_line
        return self._commit(ref.commit, steps, fetch=False) or self._asked_for(ref.commit, steps)

    def _master(self, ref: MasterRef, steps: Steps) -> str:
        self._master_is_new = None  # as it is now
        if not self._fetch_master(steps):
            raise NotHere(f"{self.shown} has no branch {MASTER}")
        name = self._parsed(f"{_BRANCH}~{ref.back}")
        if name is None:
            raise UsageProblem(f"{ref} is before the beginning of {MASTER}")
        return name

    def _commit(self, short: str, steps: Steps, *, fetch: bool = True) -> str | None:
        """The only commit in the mirror that begins so; None where there is none."""
        found = self._beginning(short)
        if not found and fetch:
            self._fetch_master(steps)
            found = self._beginning(short)
        if len(found) > 1:
            raise UsageProblem(
                f"{short} is ambiguous: {', '.join(name[:12] for name in found)}",
                hint="give more digits",
            )
        return found[0] if found else None

    def _asked_for(self, commit: str, steps: Steps) -> str:
        """A commit that is on no branch any more, or on another's: it has to be named in full."""
        if len(commit) == _WHOLE and self._fetch(commit, steps=steps):
            return commit
        hint = "" if len(commit) == _WHOLE else "all 40 digits find it beside the main branch, too"
        raise NotHere(f"{self.shown} has no commit {commit}", hint=hint)

    def _beginning(self, short: str) -> list[str]:
        """All commits in the mirror that begin so; there may be other things that do."""
        named = _NAME.findall(self._git("rev-parse", f"--disambiguate={short}").text)
        return [name for name in named if self._parsed(name) == name]

    def _parsed(self, name: str) -> str | None:
        result = self._git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return result.last_line if result.returncode == 0 else None

    def _number(self, commit: str) -> int | None:
        """Only commits of the main branch have one."""
        told = self._git("merge-base", "--is-ancestor", commit, _BRANCH)
        if not told.ok and self._master_is_new and told.returncode != _NO:
            raise NotHere(f"git merge-base: {told.error}", trouble=True)
        if not told.ok:
            return None
        return int(self._must("rev-list", "--count", commit).last_line)

    def _fetch_master(self, steps: Steps) -> bool:
        """Once is enough, as long as this lives."""
        if self._master_is_new is None:
            self._master_is_new = self._fetch(f"+{_BRANCH}:{_BRANCH}", steps=steps)
        return self._master_is_new

    def _is_on_master(self, commit: str) -> bool:
        return self._git("merge-base", "--is-ancestor", commit, _BRANCH).returncode == 0

    def _fetch(self, refspec: str, *, steps: Steps) -> bool:
        """Fetches a ref into the mirror; False where there is none."""
        self._check_answers()
        words = ("fetch", "--progress", "--no-tags", "--filter=blob:none", "origin", refspec)
        with steps.step(f"fetching {refspec.partition(':')[0].lstrip('+')} from {self.shown}"):
            result = self._git(*words, watch=steps.watch)
            if not result.ok and _CORRUPT.search(result.text):
                self._remake()
                result = self._git(*words, watch=steps.watch)
        if result.ok:
            return True
        if "couldn't find remote ref" in result.text or "not our ref" in result.text:
            return False
        raise NotHere(f"git fetch: {without_credentials(result.error)}", trouble=True)

    def _check_answers(self) -> None:
        """A fetch may take minutes; whether anybody is there shows at once."""
        if self._asked:
            return
        result = self._git("ls-remote", "--heads", "origin", MASTER, seconds=_ANSWER_SECONDS)
        if result.returncode != 0:
            raise NotHere(
                f"{self.shown} cannot be reached: {without_credentials(result.error)}",
                hint=f"{UPSTREAM_VARIABLE} names another repository",
                trouble=True,
            )
        self._asked = True

    @contextmanager
    def _ours(self, steps: Steps) -> Iterator[None]:
        """Nobody else uses the mirror meanwhile, which is there."""
        if installed("git", self._runner.environ) is None:
            hint = "Debian, Ubuntu: apt-get install git"
            raise NotHere("there is no git", hint=hint, trouble=True)
        with self._store.lock("mirror", steps, "fetching"):
            self._prepare()
            yield

    def _prepare(self) -> None:
        """Makes the mirror, or what a killed git has left of it whole again."""
        if self._git("config", "remote.origin.url").ok:
            for left in (*self._mirror.glob("*.lock"), *self._mirror.glob("refs/**/*.lock")):
                left.unlink(missing_ok=True)
            for part in self._mirror.glob("objects/pack/tmp_*"):
                part.unlink(missing_ok=True)
            return
        if self._mirror.is_dir():
            shutil.rmtree(self._mirror, ignore_errors=True)
        self._mirror.unlink(missing_ok=True)
        beside = self._mirror.with_suffix(".new")
        shutil.rmtree(beside, ignore_errors=True)
        made = self._runner.run("git", "init", "--quiet", "--bare", beside)
        if made.returncode != 0:
            raise NotHere(f"git init: {made.error}", trouble=True)
        self._runner.run(*_GIT, f"--git-dir={beside}", "remote", "add", "origin", self.url)
        beside.rename(self._mirror)

    def _remake(self) -> None:
        """Begins again with a mirror that is damaged, after a power cut, say."""
        shutil.rmtree(self._mirror, ignore_errors=True)
        self._master_is_new = None
        self._prepare()

    def _git(
        self,
        *words: str | Path,
        seconds: float | None = None,
        watch: Callable[[str], None] | None = None,
    ) -> Result:
        command = (*_GIT, f"--git-dir={self._mirror}", *words)
        return self._runner.run(*command, seconds=seconds, watch=watch)

    def _must(self, *words: str | Path) -> Result:
        result = self._git(*words)
        if result.returncode != 0:
            line = without_credentials(result.error)
            raise NotHere(f"git {words[0]}: {line}", trouble=True)
        return result


def _address(given: str) -> str:
    """A path is one from anywhere; whatever else git knows is left to it."""
    if given.startswith("-"):
        raise UsageProblem(f"{UPSTREAM_VARIABLE}={given} is no address of a repository")
    path = Path(given)
    return str(path.absolute()) if path.exists() else given.rstrip("/")
