"""Fetching from the Hugging Face hub: into its own cache, checked, and never half.

Importing this imports huggingface_hub, which reads `HF_*` then and raises `ValueError` for some.
"""

from __future__ import annotations

import hashlib
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

import httpx2
from filelock import FileLock, Timeout
from huggingface_hub import constants, errors

# From where they are: what the package itself offers says on stdout that it could not be imported.
from huggingface_hub.file_download import (
    HfFileMetadata,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    repo_folder_name,
    try_to_load_from_cache,
)

from harness.errors import UsageProblem
from harness.files import sha256_of
from harness.locks import alone
from harness.models.hub_file import NO_DOWNLOAD, HubFile
from harness.urls import without_credentials

# Plain HTTP is the way that is tested here; and nobody is told of our users.
constants.HF_HUB_DISABLE_XET = True
constants.HF_HUB_DISABLE_TELEMETRY = True

T = TypeVar("T")

_ANSWER_SECONDS = 8.0
"""How long the hub may take to say what it has, names looked up and hosts tried included."""
_LOCK_MODE = 0o664
"""As the library's own: people of one group may share a cache."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT_HASH = re.compile(r"[0-9a-f]{40}")
_ETAG = re.compile(r"\w[\w.-]*")


def fetched(file: HubFile) -> Path:
    """See `hub.fetch`."""
    with _refusals(file):
        if cached := _cached(file):
            return cached
        if constants.HF_HUB_OFFLINE:
            raise UsageProblem(
                f"{file} is not in the cache as it must be, and HF_HUB_OFFLINE is set",
                hint="the suite's --llama-model=generated needs no download",
            )
        etag = _etag(file)
        with _lock(file):
            # Perhaps whoever held the lock has fetched it.
            return _cached(file) or _downloaded(file, etag)


def _endpoint() -> str:
    """Which hub is asked, as it may be shown."""
    return without_credentials(constants.ENDPOINT)


def _cached(file: HubFile) -> Path | None:
    """The file in the cache, where it is there as it must be."""
    path = _in_cache(file)
    return path if path and _is(file, path) else None


def _in_cache(file: HubFile) -> Path | None:
    """What the cache has by that name, which may have been cut short or changed there."""
    found = try_to_load_from_cache(file.repo, file.name, revision=file.revision)
    return Path(found) if isinstance(found, str) else None


def _etag(file: HubFile) -> str:
    """What the hub calls the bytes it has: of large files the sha256, of others Git's hash.

    Raises `UsageProblem` where it already says that they are others.
    """
    # Asked once and briefly: a download asks five times, over half a minute.
    url = hf_hub_url(file.repo, file.name, revision=file.revision)
    there = _in_time(lambda: get_hf_file_metadata(url, timeout=_ANSWER_SECONDS / 2))
    if there.commit_hash is None or not _ETAG.fullmatch(there.etag or ""):
        # A page to log in at, perhaps. And the cache has files by that name.
        raise UsageProblem(
            f"{file} cannot be fetched from {_endpoint()}: what answers there is no hub",
            hint=NO_DOWNLOAD,
        )
    _check_announced(file, there)
    return str(there.etag)


def _check_announced(file: HubFile, there: HfFileMetadata) -> None:
    if None not in (file.size, there.size) and there.size != file.size:
        raise UsageProblem(f"{file} has {there.size} bytes on {_endpoint()}, not {file.size}")
    if _SHA256.fullmatch(there.etag or "") and there.etag != file.sha256:
        raise UsageProblem(f"{file} has sha256 {there.etag} on {_endpoint()}, not {file.sha256}")


def _downloaded(file: HubFile, etag: str) -> Path:
    """The blob of a file is named by its etag, and other commits may have it too."""
    blob = _repository(file) / "blobs" / etag
    _remove_damaged(file, blob)
    _remove_partial(file, blob)
    print(f"fetching {file} from {_endpoint()}", file=sys.stderr)
    path = Path(hf_hub_download(file.repo, file.name, revision=file.revision))
    if not _is(file, path):
        found = sha256_of(path)
        _forget(file, path)
        raise UsageProblem(
            f"{file}: what {_endpoint()} sent has sha256 {found}, not {file.sha256}",
            hint="nothing of it was kept",
        )
    return path


def _remove_damaged(file: HubFile, blob: Path) -> None:
    """Removes what would be taken for the file, and is not what the hub has.

    What may be the hub's own stays, and is told of: what is wrong is the hash that was asked for.
    """
    for path in filter(None, (_in_cache(file), blob)):
        if not path.exists() or _is(file, path):
            continue
        if not _is_damaged(path, blob.name):
            raise UsageProblem(
                f"{file} has sha256 {sha256_of(path)} in the cache, not {file.sha256}",
                hint=f"if the cache is wrong, remove {path}",
            )
        _forget(file, path)


def _is_damaged(path: Path, etag: str) -> bool:
    """Whether a file is surely another than what the hub calls by this etag."""
    if _SHA256.fullmatch(etag):
        return sha256_of(path) != etag
    return bool(_GIT_HASH.fullmatch(etag)) and _git_hash_of(path) != etag


def _remove_partial(file: HubFile, blob: Path) -> None:
    """Removes what a download left behind that was killed."""
    partial = list(blob.parent.glob(f"{blob.name}.*incomplete"))
    if not partial:
        return
    lock = Path(constants.HF_HUB_CACHE) / ".locks" / _repository(file).name / f"{blob.name}.lock"
    try:
        # The library's own lock: somebody else's program may be at it just now.
        with FileLock(lock, timeout=1, mode=_LOCK_MODE):
            for path in partial:
                path.unlink(missing_ok=True)
    except Timeout:
        return


@contextmanager
def _refusals(file: HubFile) -> Iterator[None]:
    """Says in one line why a file could not be had."""
    endpoint = _endpoint()
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
    except (
        *(OSError, ValueError, httpx2.HTTPError, httpx2.InvalidURL, errors.OIDCError),
        ImportError,  # a SOCKS proxy needs one more package
        NotImplementedError,  # a file system without locks
    ) as error:
        raise UsageProblem(
            f"{file} cannot be fetched from {endpoint}: {_reason(error)}", hint=NO_DOWNLOAD
        ) from None


def _reason(error: Exception) -> str:
    """Why, in one line; the library's own last word is often just to check one's connection."""
    cause = error.__cause__ if isinstance(error, FileNotFoundError) else None
    text = str(cause or error).strip() or type(cause or error).__name__
    answer = getattr(cause or error, "response", None)
    said = "" if answer is None else answer.headers.get("X-Error-Message", "")
    lines = (text.splitlines()[0], said)
    return without_credentials(": ".join(line for line in lines if line))


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


def _lock(file: HubFile) -> AbstractContextManager[None]:
    """One process at a time downloads, checks and throws away."""
    lock = Path(constants.HF_HUB_CACHE) / ".locks" / f"llama-cache-harness-{file.sha256}.lock"
    waiting = f"another process is fetching {file}; waiting for it"
    return alone(lock, lambda: print(waiting, file=sys.stderr))


def _repository(file: HubFile) -> Path:
    """Where the cache keeps a repository."""
    name = repo_folder_name(repo_id=file.repo, repo_type="model")
    return Path(constants.HF_HUB_CACHE) / name


def _is(file: HubFile, path: Path) -> bool:
    """Whether what is at `path` is the file."""
    if not path.is_file():
        return False
    whole = file.size is None or path.stat().st_size == file.size
    return whole and sha256_of(path) == file.sha256


def _git_hash_of(path: Path) -> str:
    """What Git calls the bytes of a file; the hub too, where they are not in large file storage."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as content:
        while part := content.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _forget(file: HubFile, path: Path) -> None:
    """Removes a file from the cache: the link in its snapshot, and the blob that it points to.

    Not what a person has linked into the cache from elsewhere.
    """
    target = path.parent / path.readlink() if path.is_symlink() else path
    path.unlink(missing_ok=True)
    blobs = _repository(file) / "blobs"
    if target.parent.is_dir() and target.parent.samefile(blobs):
        target.unlink(missing_ok=True)
