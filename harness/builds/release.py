"""Upstream's releases: archives of a built llama-server, for the common platforms."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import msgspec

from harness.builds.archive import BadArchive, unpack
from harness.builds.base import ELSEWHERE, UPSTREAM, Delivery, Flavour, NotHere, Wanted
from harness.builds.download import NoSuchFile, download
from harness.builds.steps import Steps
from harness.builds.web import answer, host, shown

RELEASES_VARIABLE = "LLAMA_HARNESS_RELEASES"
"""Names another repository, of GitHub or a GitHub Enterprise server."""

_GITHUB = {"github.com", "www.github.com"}
_API = "https://api.github.com"

_LISTED = 100
"""How many releases the API lists at once; the newest."""
_LIMITED = (403, 429)
"""What who has asked too often is told."""
_TOKENS = ("GH_TOKEN", "GITHUB_TOKEN")
_ENTERPRISE_TOKENS = ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
"""In the order in which GitHub's own program takes them: the former for github.com alone."""
_PRIVATE = re.compile(r"https://|http://(?:localhost|127\.0\.0\.1|\[::1\])[:/]")
"""Where nobody on the way can read a token."""
_SYSTEMS = {"Linux": "ubuntu", "Darwin": "macos"}
_MACHINES = {
    "x86_64": "x64",
    "amd64": "x64",
    "aarch64": "arm64",
    "arm64": "arm64",
    "s390x": "s390x",
}
_ADDRESS = re.compile(r"(https?://[^/\s]+)(?:/[^/\s?#]+)*?/([^/\s?#]+/[^/\s?#]+)")
_TAG = re.compile(r"b([0-9]{1,6})")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")
_VERSION = r"(?P<version>\d+(?:\.\d+)*)"
_ENDINGS = (".tar.gz", ".zip")
"""Releases before about b7800 have the latter."""
_SERVER = "llama-server"


class _Asset(msgspec.Struct, frozen=True):
    """A file of a release, as the API lists it."""

    name: str
    size: int | None = None
    digest: str | None = None

    @property
    def sha256(self) -> str | None:
        """None for older ones, of which nothing is said."""
        match = _DIGEST.fullmatch(self.digest or "")
        return match[1].lower() if match else None


class _Release(msgspec.Struct, frozen=True):
    """What the API says of a release."""

    assets: list[_Asset]
    tag_name: str = ""
    target_commitish: str | None = None

    @property
    def commit(self) -> str | None:
        """None where the release was made from a branch by name."""
        match = _COMMIT.fullmatch(self.target_commitish or "")
        return match[0] if match else None

    @property
    def number(self) -> int | None:
        """Return the build number that the tag is; None for another tag."""
        match = _TAG.fullmatch(self.tag_name)
        return int(match[1]) if match else None


class _NoAnswer(Exception):
    """The API says nothing of use; the message says why."""


@dataclass(frozen=True, slots=True)
class _Repository:
    """Where releases are, and where is said what they hold."""

    base: str
    api: str

    @classmethod
    def named(cls, address: str) -> Self:
        """By its page. Raises `NotHere` where it is none."""
        base = address.strip().rstrip("/").removesuffix(".git")
        match = _ADDRESS.fullmatch(base)
        if match is None:
            raise NotHere(
                f"{RELEASES_VARIABLE} is no address of a repository", hint=f"one is {UPSTREAM}"
            )
        site, repository = match.groups()
        if host(base) in _GITHUB:
            return cls(base, f"{_API}/repos/{repository}")
        return cls(base, f"{site}/api/v3/repos/{repository}")

    def asset(self, number: int, name: str) -> str:
        """The address of a file of a release."""
        return f"{self.base}/releases/download/b{number}/{name}"

    def release(self, number: int, token: str) -> _Release:
        """What the API says of a release. Raises `NotHere` where there is none, or `_NoAnswer`."""
        missing = f"no such build: {shown(self.base)} has no release b{number}"
        content = self._answer(f"releases/tags/b{number}", token, missing)
        try:
            return msgspec.json.decode(content, type=_Release)
        except msgspec.DecodeError:
            raise self._no_api() from None

    def newest(self, token: str) -> list[_Release]:
        """List the newest releases. Raises `NotHere` where there are none, or `_NoAnswer`."""
        missing = f"{shown(self.base)} has no releases"
        content = self._answer(f"releases?per_page={_LISTED}", token, missing)
        try:
            return msgspec.json.decode(content, type=list[_Release])
        except msgspec.DecodeError:
            raise self._no_api() from None

    def _no_api(self) -> _NoAnswer:
        return _NoAnswer(f"what answers at {host(self.api)} is no release API")

    def _answer(self, path: str, token: str, missing: str) -> bytes:
        """Ask the API. Raises `NotHere` where it answers that there is nothing, or `_NoAnswer`."""
        url = f"{self.api}/{path}"
        headers = {"Accept": "application/vnd.github+json"}
        if token and _PRIVATE.match(shown(url)):
            headers["Authorization"] = f"Bearer {token}"
        try:
            with answer(url, headers) as response:
                if response.status_code == 404:
                    raise NotHere(missing)
                if response.status_code != 200:
                    advice = " (GH_TOKEN may help)" if response.status_code in _LIMITED else ""
                    raise _NoAnswer(f"{host(url)} answers HTTP {response.status_code}{advice}")
                return response.content
        except NotHere as error:
            if not error.trouble:
                raise
            raise _NoAnswer(error.reason) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRung:
    """Takes builds from the release of their number."""

    downloads: Path
    """Where what has come of an archive is kept until it is whole."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    system: str = field(default_factory=platform.system)
    machine: str = field(default_factory=platform.machine)

    @property
    def name(self) -> str:
        """See `Rung`."""
        return "release"

    def deliver(self, wanted: Wanted, into: Path, steps: Steps) -> Delivery:
        """See `Rung`. With several CUDA versions, the highest is taken."""
        number, repository = self._asked_for(wanted)
        stem = _stem(number, wanted.flavour, self.system, self.machine)
        release = self._release(repository, number, steps)
        commit = release.commit if release else None
        if commit and not commit.startswith(wanted.commit or ""):
            raise NotHere(f"b{number} is commit {commit[:10]} there")
        fetch = _Fetch(repository, number, self.downloads, into, steps)
        if release is None:
            asset, sha256 = fetch.unlisted(stem, wanted.flavour)
        else:
            asset = _chosen(release.assets, stem, f"b{number} has no build for {wanted.flavour}")
            sha256 = fetch.unpacked(asset, into)
        binary = _server(into, asset.name)
        if release and wanted.flavour is Flavour.CUDA:
            fetch.runtime(release.assets, asset, binary.parent)
        return Delivery(
            binary=binary.relative_to(into),
            source=shown(repository.asset(number, asset.name)),
            commit=commit,
            number=number,
            archive_sha256=sha256,
            repository=wanted.repository,
        )

    def numbers(self, wanted: Wanted, steps: Steps) -> frozenset[int]:
        """See `Rung`. Raises `NotHere` for a number older than all that the API lists."""
        number, repository = self._asked_for(wanted)
        try:
            listed = repository.newest(self._token(repository))
        except _NoAnswer as error:
            raise NotHere(str(error), trouble=True) from None
        releases = {one.number: one.assets for one in listed if one.number is not None}
        if len(listed) == _LISTED and number < min(releases, default=number):
            raise NotHere(f"its API lists only the newest {_LISTED}")
        return frozenset(
            there
            for there, assets in releases.items()
            if _fitting(assets, _stem(there, wanted.flavour, self.system, self.machine))
        )

    def _asked_for(self, wanted: Wanted) -> tuple[int, _Repository]:
        """Return the number to ask for, and whom. Raises `NotHere` where there is no such."""
        if wanted.number is None:
            raise NotHere("no build number to ask for")
        theirs = self.environ.get(RELEASES_VARIABLE)
        if wanted.repository != UPSTREAM and wanted.commit is None and not theirs:
            raise NotHere(f"it is upstream's, not of {wanted.repository}")
        # A platform that has no builds at all is told before a wrong address.
        _stem(wanted.number, wanted.flavour, self.system, self.machine)
        return wanted.number, _Repository.named(theirs or UPSTREAM)

    def _token(self, repository: _Repository) -> str:
        names = _TOKENS if repository.api.startswith(_API) else _ENTERPRISE_TOKENS
        return next(filter(None, map(self.environ.get, names)), "").strip()

    def _release(self, repository: _Repository, number: int, steps: Steps) -> _Release | None:
        """None where nobody says what the release holds."""
        try:
            with steps.step(f"ask {host(repository.api)} for release b{number}"):
                return repository.release(number, self._token(repository))
        except _NoAnswer as error:
            steps.say(f"{error}: going on without a digest to check the download against")
            return None


@dataclass(frozen=True, slots=True)
class _Fetch:
    """Gets archives of one release into a directory."""

    repository: _Repository
    number: int
    downloads: Path
    into: Path
    steps: Steps

    def unlisted(self, stem: str, flavour: Flavour) -> tuple[_Asset, str]:
        """Gets the archive by the names that it may have, where nobody says which are there."""
        if flavour is Flavour.CUDA:
            raise NotHere(
                "only the release API says for which CUDA versions there are builds", trouble=True
            )
        for asset in (_Asset(stem + ending) for ending in _ENDINGS):
            try:
                return asset, self.unpacked(asset, self.into)
            except NoSuchFile:
                continue
        raise NotHere(f"no such build: {shown(self.repository.base)} has no {stem}")

    def unpacked(self, asset: _Asset, into: Path) -> str:
        """Unpacks an archive into a directory; its sha256."""
        url = self.repository.asset(self.number, asset.name)
        with _disk(asset), TemporaryDirectory(dir=self.into) as beside:
            archive = Path(beside) / asset.name
            sha256 = download(
                url,
                archive,
                partials=self.downloads,
                steps=self.steps,
                sha256=asset.sha256,
                size=asset.size,
            )
            if asset.sha256 is None:
                self.steps.say(f"{asset.name}: there is no digest that it must have")
            try:
                with self.steps.step(f"unpack {asset.name}"):
                    unpack(archive, into)
            except BadArchive as error:
                # Without a digest it may have been damaged on its way.
                raise NotHere(f"{asset.name}: {error.reason}", trouble=not asset.sha256) from None
        return sha256

    def runtime(self, assets: Sequence[_Asset], build: _Asset, beside: Path) -> None:
        """Puts CUDA's own libraries where the binary looks for them: beside it."""
        names = {f"cudart-{build.name}", f"cudart-{build.name.replace(f'b{self.number}-', '', 1)}"}
        asset = next((asset for asset in assets if asset.name in names), None)
        if asset is None:
            self.steps.say("the release has no CUDA runtime: the system's is used")
            return
        with _disk(asset), TemporaryDirectory(dir=self.into) as unpacked:
            self.unpacked(asset, Path(unpacked))
            for library in sorted(Path(unpacked).rglob("*.so*")):
                if not os.path.lexists(beside / library.name):
                    library.rename(beside / library.name)


@contextmanager
def _disk(asset: _Asset) -> Iterator[None]:
    """Says in one line what is wrong with the disk."""
    try:
        yield
    except OSError as error:
        raise NotHere(
            f"{asset.name} cannot be unpacked: {error.strerror or type(error).__name__}",
            hint=ELSEWHERE,
            trouble=True,
        ) from None


def _stem(number: int, flavour: Flavour, system: str, machine: str) -> str:
    """What the name of an archive for a platform matches, but for its ending.

    The name itself, where nothing but a CUDA version varies. Servers for macOS compute on its GPU
    too (Metal), and on the CPU.
    """
    known = _SYSTEMS.get(system), _MACHINES.get(machine.lower())
    if None in known or (known[0] == "macos" and flavour is not Flavour.CPU):
        raise NotHere(f"upstream has no builds for {flavour} on {system} {machine}")
    middle = {Flavour.CPU: "", Flavour.VULKAN: "-vulkan", Flavour.CUDA: rf"-cuda-{_VERSION}"}
    return f"llama-b{number}-bin-{known[0]}{middle[flavour]}-{known[1]}"


def _chosen(assets: Sequence[_Asset], stem: str, none: str) -> _Asset:
    """Of the archives that fit the one for the highest CUDA version."""
    fitting = _fitting(assets, stem)
    if not fitting:
        raise NotHere(f"release {none} on this platform")
    return max(fitting, key=lambda one: one[0])[1]


def _fitting(assets: Sequence[_Asset], stem: str) -> list[tuple[list[int], _Asset]]:
    """Return the archives that fit, with their CUDA versions."""
    endings = "|".join(map(re.escape, _ENDINGS))
    return [
        (_version(match), asset)
        for asset in assets
        if (match := re.fullmatch(f"{stem}(?:{endings})", asset.name))
    ]


def _version(match: re.Match[str]) -> list[int]:
    version = match.groupdict().get("version") or "0"
    return [int(part) for part in version.split(".")]


def _server(into: Path, archive: str) -> Path:
    found = [path for path in into.rglob(_SERVER) if path.is_file() and not path.is_symlink()]
    if len(found) != 1:
        raise NotHere(f"{archive} has {len(found) or 'no'} {_SERVER} in it")
    if not os.access(found[0], os.X_OK):
        raise NotHere(f"{archive} has a {_SERVER} that is not executable")
    return found[0]
