"""Files from the Hugging Face hub: of a pinned commit, checked by hash, in the hub's own cache."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from harness.errors import UsageProblem
from harness.files import sha256_of

T = TypeVar("T")

_ANSWER_SECONDS = 8.0
"""How long the hub may take to say what it has, names looked up and hosts tried included."""
_NO_DOWNLOAD = "--llama-model=generated needs no download; HF_ENDPOINT names another hub"
_LOCK_MODE = 0o664
"""As the library's own: people of one group may share a cache."""
_REVISION = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository (`owner/name`) at a commit (40 hex digits), and what it must be.

    Raises `UsageProblem` for a revision that is no commit (a branch may move), or no hash.
    """

    repo: str
    revision: str
    name: str
    sha256: str
    size: int | None = None
    """Bytes; None where it is not known beforehand."""

    def __post_init__(self) -> None:
        if not _REVISION.fullmatch(self.revision):
            raise UsageProblem(
                f"{self.revision!r} is no commit", hint="40 hex digits; a branch may move"
            )
        if not _SHA256.fullmatch(self.sha256):
            raise UsageProblem(f"{self.sha256!r} is no sha256", hint="64 hex digits")

    def __str__(self) -> str:
        return f"{self.repo}/{self.name} at {self.revision[:8]}"


def fetch(file: HubFile) -> Path:
    """Where the file is in the hub's cache, fetched now unless it is there whole.

    Progress goes to stderr. `HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME`, `HF_HUB_OFFLINE` and proxies are
    honoured; processes that want the same file wait for each other. Raises `UsageProblem` where it
    cannot be had. What the hub sends that is not the file does not stay in the cache.
    """
    hub = _library(file)
    with _refusals(hub, file):
        if cached := _cached(hub, file):
            return cached
        with _lock(hub, file):
            # Perhaps whoever held the lock has fetched it.
            return _cached(hub, file) or _downloaded(hub, file)


def _library(file: HubFile) -> ModuleType:
    """huggingface_hub, imported only where something is fetched."""
    # Read at import. Plain HTTP is the way that is tested here; and nobody is told of our users.
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import huggingface_hub.constants
        import huggingface_hub.file_download
    except ValueError as error:
        endpoint = os.environ.get("HF_ENDPOINT", "the hub")
        raise UsageProblem(
            f"{file} cannot be fetched from {endpoint}: {error}", hint=_NO_DOWNLOAD
        ) from None
    return huggingface_hub


def _cached(hub: ModuleType, file: HubFile) -> Path | None:
    """The file in the cache, where it is there as it must be."""
    path = _in_cache(hub, file)
    return path if path and _is(file, path) else None


def _in_cache(hub: ModuleType, file: HubFile) -> Path | None:
    """What the cache has by that name, which may have been cut short or changed there."""
    found = hub.try_to_load_from_cache(file.repo, file.name, revision=file.revision)
    return Path(found) if isinstance(found, str) else None


def _downloaded(hub: ModuleType, file: HubFile) -> Path:
    endpoint = hub.constants.ENDPOINT
    if hub.constants.HF_HUB_OFFLINE:
        raise UsageProblem(
            f"{file} is not in the cache, and HF_HUB_OFFLINE is set", hint=_NO_DOWNLOAD
        )
    # One question first: a download asks it five times, over half a minute.
    url = hub.hf_hub_url(file.repo, file.name, revision=file.revision)
    there = _in_time(lambda: hub.get_hf_file_metadata(url, timeout=_ANSWER_SECONDS / 2))
    if there.commit_hash is None:  # A page to log in at, perhaps.
        raise UsageProblem(
            f"{file} cannot be fetched from {endpoint}: what answers there is no hub",
            hint=_NO_DOWNLOAD,
        )
    if None not in (file.size, there.size) and there.size != file.size:
        raise UsageProblem(f"{file} has {there.size} bytes on {endpoint}, not {file.size}")
    if there.etag != file.sha256 and _SHA256.fullmatch(there.etag or ""):
        raise UsageProblem(f"{file} has sha256 {there.etag} on {endpoint}, not {file.sha256}")
    # What is in the way goes only now: the hub has the right one.
    if damaged := _in_cache(hub, file):
        _forget(damaged)
    _clear_blobs(hub, file)
    print(f"fetching {file} from {endpoint}", file=sys.stderr)
    path = Path(hub.hf_hub_download(file.repo, file.name, revision=file.revision))
    if not _is(file, path):
        found = sha256_of(path)
        _forget(path)
        raise UsageProblem(
            f"{file}: what {endpoint} sent has sha256 {found}, not {file.sha256}",
            hint="nothing of it was kept",
        )
    return path


@contextmanager
def _refusals(hub: ModuleType, file: HubFile) -> Iterator[None]:
    """Says in one line why a file could not be had."""
    import httpx2
    from huggingface_hub import errors

    endpoint = hub.constants.ENDPOINT
    # And ImportError: a SOCKS proxy needs one more package.
    others = (httpx2.HTTPError, httpx2.InvalidURL, errors.OIDCError)
    try:
        yield
    except errors.GatedRepoError:
        raise UsageProblem(
            f"{file} is gated on {endpoint}", hint="accept its terms there, and set HF_TOKEN"
        ) from None
    except errors.RepositoryNotFoundError:
        # The hub says the same of what is private: it does not tell.
        raise UsageProblem(
            f"{endpoint} has no {file.repo}, or does not show it",
            hint="HF_TOKEN opens private ones",
        ) from None
    except (errors.RevisionNotFoundError, errors.RemoteEntryNotFoundError):
        raise UsageProblem(f"{endpoint} has no {file}") from None
    except (OSError, ValueError, ImportError, *others) as error:
        raise UsageProblem(
            f"{file} cannot be fetched from {endpoint}: {_reason(error)}", hint=_NO_DOWNLOAD
        ) from None


def _reason(error: Exception) -> str:
    """Why, in one line; the library's own last word is often just to check one's connection."""
    cause = error.__cause__ if isinstance(error, FileNotFoundError) else None
    text = str(cause or error).strip() or type(cause or error).__name__
    answer = getattr(cause or error, "response", None)
    said = "" if answer is None else answer.headers.get("X-Error-Message", "")
    return ": ".join(line for line in (text.splitlines()[0], said) if line)


def _in_time(ask: Callable[[], T]) -> T:
    """What `ask` returns; `TimeoutError` where it takes too long.

    Its own timeout is for each of a host's addresses, and looking up a name has none.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return answer.result(_ANSWER_SECONDS)
    except TimeoutError:
        if answer.done():
            raise
        raise TimeoutError(f"no answer within {_ANSWER_SECONDS:g} s") from None


@contextmanager
def _lock(hub: ModuleType, file: HubFile) -> Iterator[None]:
    """One process at a time downloads, checks and throws away."""
    from filelock import FileLock

    directory = Path(hub.constants.HF_HUB_CACHE) / ".locks"
    directory.mkdir(parents=True, exist_ok=True)
    with FileLock(directory / f"llama-cache-harness-{file.sha256}.lock", mode=_LOCK_MODE):
        yield


def _clear_blobs(hub: ModuleType, file: HubFile) -> None:
    """Removes what a download left behind that was killed, and a blob that was damaged.

    A file's blob is named by its hash, and other commits may have it too.
    """
    from filelock import FileLock, Timeout
    from huggingface_hub.file_download import repo_folder_name

    cache = Path(hub.constants.HF_HUB_CACHE)
    folder = repo_folder_name(repo_id=file.repo, repo_type="model")
    blob = cache / folder / "blobs" / file.sha256
    partial = list(blob.parent.glob(f"{blob.name}.*incomplete"))
    if not partial and not blob.exists():
        return
    lock = cache / ".locks" / folder / f"{blob.name}.lock"
    try:
        # The hub's own lock: somebody else's program may be at it just now.
        with FileLock(lock, timeout=1, mode=_LOCK_MODE):
            for path in partial if _is(file, blob) else [*partial, blob]:
                path.unlink(missing_ok=True)
    except Timeout:
        return


def _is(file: HubFile, path: Path) -> bool:
    """Whether what is at `path` is the file."""
    if not path.is_file():
        return False
    whole = file.size is None or path.stat().st_size == file.size
    return whole and sha256_of(path) == file.sha256


def _forget(path: Path) -> None:
    """Removes a file from the hub's cache: the link in its snapshot, and what that points to."""
    blob = path.resolve()
    path.unlink(missing_ok=True)
    blob.unlink(missing_ok=True)
