"""Upstream's releases, on a server of our own with GitHub's addresses."""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from harness.builds import release, web
from harness.builds.base import Delivery, Flavour, NotHere, Rung, Wanted
from harness.builds.ref import NumberRef, parse
from harness.builds.release import ReleaseRung
from harness.builds.steps import Steps
from tests.harness.fake_file import FakeFile
from tests.harness.fake_http import Answer, FakeServer
from tests.harness.fake_hub import header, sha256
from tests.harness.fake_releases import (
    COMMIT,
    LIBRARY,
    REPO,
    SERVER,
    FakeReleases,
    build,
    tar_gz,
    zipped,
)

NAME = "llama-b1-bin-ubuntu-x64"
TAR = tar_gz(build())
ZIP = zipped(build("build/bin/"))
CUDA = "llama-b1-bin-ubuntu-cuda"
B1 = Wanted(ref=NumberRef(1), number=1)


@pytest.fixture(autouse=True)
def _nothing_of_the_testers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", os.devnull)


@dataclass
class Place:
    """Where a build is put, and what was told on the way."""

    into: Path
    out: io.StringIO = field(default_factory=io.StringIO)
    environ: dict[str, str] = field(default_factory=dict)
    system: str = "Linux"
    machine: str = "x86_64"

    def rung(self, url: str) -> Rung:
        return ReleaseRung(
            downloads=self.into.parent / "downloads",
            environ={"LLAMA_HARNESS_RELEASES": f"{url}/{REPO}", **self.environ},
            system=self.system,
            machine=self.machine,
        )

    def delivery(self, url: str, wanted: Wanted = B1) -> Delivery:
        delivery = self.rung(url).deliver(wanted, self.into, Steps("b1", self.out))
        assert (self.into / delivery.binary).read_bytes() == SERVER
        assert os.access(self.into / delivery.binary, os.X_OK)
        # Nothing of the way there is left.
        assert {path.suffix for path in (self.into.parent / "downloads").iterdir()} == {".lock"}
        return delivery

    def refusal(self, url: str, wanted: Wanted = B1) -> NotHere:
        with pytest.raises(NotHere) as raised:
            self.rung(url).deliver(wanted, self.into, Steps("b1", self.out))
        assert len(raised.value.reason.splitlines()) == 1
        assert "secret" not in raised.value.reason + self.out.getvalue()
        return raised.value


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "new").mkdir()
    return Place(tmp_path / "new")


def names(server: FakeServer) -> list[str]:
    """What was asked for, without the API."""
    return [asked.path.rpartition("/")[2] for asked in server.asked if "/api/" not in asked.path]


def test_a_build(place: Place) -> None:
    with FakeServer(FakeReleases({f"{NAME}.tar.gz": TAR})) as server:
        delivery = place.delivery(server.url)
        assert delivery == Delivery(
            binary=Path("llama-b1/llama-server"),
            source=f"{server.url}/{REPO}/releases/download/b1/{NAME}.tar.gz",
            commit=COMMIT,
            number=1,
            archive_sha256=sha256(TAR),
        )
        assert names(server) == [f"{NAME}.tar.gz"]
    assert (place.into / "llama-b1/libllama.so").readlink() == Path("libllama.so.0")
    assert (place.into / "llama-b1/libllama.so").read_bytes() == LIBRARY
    assert [path.name for path in place.into.iterdir()] == ["llama-b1"]
    assert "digest" not in place.out.getvalue()
    assert place.rung("").name == "release"


@pytest.mark.parametrize("top", ["", "build/bin/"])
def test_an_older_build(place: Place, top: str) -> None:
    with FakeServer(FakeReleases({f"{NAME}.zip": zipped(build(top))}, commit="master")) as server:
        delivery = place.delivery(server.url)
        assert delivery.binary == Path(f"{top}llama-server")
        assert delivery.commit is None
        assert names(server) == [f"{NAME}.zip"]


PLATFORMS: Mapping[str, tuple[str, str, Flavour, str]] = {
    "cpu": ("Linux", "x86_64", Flavour.CPU, "ubuntu-x64"),
    "arm": ("Linux", "aarch64", Flavour.CPU, "ubuntu-arm64"),
    "s390x": ("Linux", "s390x", Flavour.CPU, "ubuntu-s390x"),
    "vulkan": ("Linux", "x86_64", Flavour.VULKAN, "ubuntu-vulkan-x64"),
    "vulkan_arm": ("Linux", "aarch64", Flavour.VULKAN, "ubuntu-vulkan-arm64"),
    "cuda": ("Linux", "x86_64", Flavour.CUDA, "ubuntu-cuda-12.8-x64"),
    "cuda_arm": ("Linux", "aarch64", Flavour.CUDA, "ubuntu-cuda-13.4-arm64"),
    "mac": ("Darwin", "arm64", Flavour.CPU, "macos-arm64"),
    "old_mac": ("Darwin", "x86_64", Flavour.CPU, "macos-x64"),
}
EVERYTHING = {
    f"llama-b1-bin-{platform}.tar.gz": tar_gz(build(f"{platform}/"))
    for platform in [
        *(platform for *_, platform in PLATFORMS.values()),
        *("win-cpu-x64", "macos-arm64-kleidiai", "ubuntu-rocm-7.2-x64", "ubuntu-cudas-14-x64"),
    ]
}


@pytest.mark.parametrize("name", PLATFORMS)
def test_each_platform_has_its_own(place: Place, name: str) -> None:
    place.system, place.machine, flavour, platform = PLATFORMS[name]
    with FakeServer(FakeReleases(EVERYTHING)) as server:
        delivery = place.delivery(server.url, replace(B1, flavour=flavour))
    assert delivery.binary == Path(platform) / "llama-server"


@pytest.mark.parametrize(
    ("system", "machine", "flavour"),
    [
        ("Windows", "AMD64", Flavour.CPU),
        ("Linux", "riscv64", Flavour.CPU),
        ("Darwin", "arm64", Flavour.CUDA),
        ("Darwin", "arm64", Flavour.VULKAN),
    ],
)
def test_a_platform_without_builds(
    place: Place, dead: str, system: str, machine: str, flavour: Flavour
) -> None:
    """Known without asking."""
    place.system, place.machine = system, machine
    error = place.refusal(dead, replace(B1, flavour=flavour))
    assert error.reason == f"upstream has no builds for {flavour} on {system} {machine}"
    assert not error.trouble


def test_a_flavour_that_the_release_does_not_have(place: Place) -> None:
    with FakeServer(FakeReleases({f"{NAME}.tar.gz": TAR})) as server:
        error = place.refusal(server.url, replace(B1, flavour=Flavour.VULKAN))
        assert names(server) == []
    assert error.reason == "release b1 has no build for vulkan on this platform"
    assert not error.trouble


def cuda_files(prefix: str = "cudart-llama-b1") -> dict[str, bytes]:
    runtime: dict[str, bytes | str] = {
        "cudart/libcudart.so": "libcudart.so.13",
        "cudart/libcudart.so.13": b"runtime",
        "cudart/libllama.so.0": b"another",
        "cudart/LICENSE": b"",
    }
    return {
        # In no order, and the highest is not the last as a text.
        f"{CUDA}-13.4-x64.tar.gz": tar_gz(build("llama-b1/", new=b"")),
        f"{CUDA}-13.10-x64.tar.gz": tar_gz(build("llama-b1/", newest=b"")),
        f"{CUDA}-12.8-x64.tar.gz": tar_gz(build("llama-b1/", old=b"")),
        f"{CUDA}-14.1-arm64.tar.gz": tar_gz(build("llama-b1/", arm=b"")),
        f"{prefix}-bin-ubuntu-cuda-13.10-x64.tar.gz": tar_gz(runtime),
        f"{prefix}-bin-ubuntu-cuda-12.8-x64.tar.gz": tar_gz({"cudart/libcudart.so.12": b""}),
    }


@pytest.mark.parametrize("prefix", ["cudart-llama-b1", "cudart-llama"])
def test_the_highest_cuda_with_its_runtime(place: Place, prefix: str) -> None:
    with FakeServer(FakeReleases(cuda_files(prefix))) as server:
        delivery = place.delivery(server.url, replace(B1, flavour=Flavour.CUDA))
        assert names(server) == [
            f"{CUDA}-13.10-x64.tar.gz",
            f"{prefix}-bin-ubuntu-cuda-13.10-x64.tar.gz",
        ]
    assert delivery.source.endswith(f"/{CUDA}-13.10-x64.tar.gz")
    top = place.into / delivery.binary.parent
    assert (top / "newest").exists()
    assert (top / "libcudart.so").read_bytes() == b"runtime"
    assert (top / "libcudart.so").readlink() == Path("libcudart.so.13")
    assert (top / "libllama.so").read_bytes() == LIBRARY  # its own stays
    assert [path.name for path in place.into.iterdir()] == ["llama-b1"]


def test_cuda_without_its_runtime(place: Place) -> None:
    files = {f"{CUDA}-12.8-x64.tar.gz": TAR}
    with FakeServer(FakeReleases(files)) as server:
        place.delivery(server.url, replace(B1, flavour=Flavour.CUDA))
    assert "the release has no CUDA runtime" in place.out.getvalue()


def test_cuda_is_not_guessed(place: Place) -> None:
    with FakeServer(FakeReleases(cuda_files(), api=Answer({}, 403))) as server:
        error = place.refusal(server.url, replace(B1, flavour=Flavour.CUDA))
        assert names(server) == []
    assert error.trouble
    assert "CUDA versions" in error.reason


def test_a_wrong_digest(place: Place) -> None:
    name = f"{NAME}.tar.gz"
    digests = {name: f"sha256:{sha256(ZIP)}"}
    with FakeServer(FakeReleases({name: TAR}, digests=digests)) as server:
        error = place.refusal(server.url)
    assert f"has sha256 {sha256(TAR)}, not {sha256(ZIP)}" in error.reason
    assert list(place.into.iterdir()) == []


def test_a_wrong_size(place: Place) -> None:
    """Which older releases have, that have no digests."""
    name = f"{NAME}.tar.gz"
    releases = FakeReleases({name: TAR}, digests={name: None}, kept={name: FakeFile(ZIP)})
    with FakeServer(releases) as server:
        assert f"has {len(ZIP)} bytes, not {len(TAR)}" in place.refusal(server.url).reason


@pytest.mark.parametrize("digest", [None, "", "sha512:00", "sha256:beef"])
def test_no_digest(place: Place, digest: str | None) -> None:
    name = f"{NAME}.tar.gz"
    with FakeServer(FakeReleases({name: TAR}, digests={name: digest})) as server:
        assert place.delivery(server.url).archive_sha256 == sha256(TAR)
    assert f"{name}: there is no digest" in place.out.getvalue()


NO_API: Mapping[str, tuple[Answer, str]] = {
    "unauthorized": (Answer({}, 401), "answers HTTP 401:"),
    "limited": (Answer({}, 403), "answers HTTP 403 (GH_TOKEN may help):"),
    "too_many": (Answer({}, 429), "answers HTTP 429 (GH_TOKEN may help):"),
    "broken": (Answer({}, 500), "answers HTTP 500:"),
    "portal": (Answer(b"<html>Log in</html>"), "is no release API:"),
    "other_json": (Answer({"assets": "none"}), "is no release API:"),
    "no_text": (Answer(b'{"assets": [], "target_commitish": "\xff"}'), "is no release API:"),
    "breaks_off": (Answer({"assets": []}, cut=5), "the connection broke off:"),
    "hangs_up": (Answer(drop=True), "cannot be fetched: "),
}


@pytest.mark.parametrize(
    "files", [{f"{NAME}.tar.gz": TAR}, {f"{NAME}.zip": ZIP}], ids=["tar", "zip"]
)
@pytest.mark.parametrize("why", NO_API)
def test_without_the_api(place: Place, why: str, files: Mapping[str, bytes]) -> None:
    """There is no digest then, and no list of names."""
    api, words = NO_API[why]
    with FakeServer(FakeReleases(files, api=api)) as server:
        delivery = place.delivery(server.url)
        tried = [f"{NAME}.tar.gz", f"{NAME}.zip"]
        assert names(server) == (tried if f"{NAME}.zip" in files else tried[:1])
    assert (delivery.number, delivery.commit) == (1, None)
    (line,) = [line for line in place.out.getvalue().splitlines() if "going on" in line]
    assert words in line
    assert "going on without a digest" in line


def test_an_api_that_is_down(place: Place, dead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As GitHub's may be, which is on another host than the files."""
    monkeypatch.setattr("harness.builds.release._API", dead)
    with FakeServer(FakeReleases({f"{NAME}.tar.gz": TAR})) as server:
        monkeypatch.setattr("harness.builds.release._GITHUB", {web.host(server.url)})
        place.delivery(server.url)
        assert [asked.path for asked in server.asked if "/api/" in asked.path] == []
    assert f"{dead}/repos/{REPO}/releases/tags/b1 cannot be fetched" in place.out.getvalue()


def test_a_host_that_is_down(place: Place, dead: str) -> None:
    error = place.refusal(dead)
    assert error.trouble
    assert "Connection refused" in error.reason


def test_no_such_build(place: Place) -> None:
    with FakeServer(FakeReleases({}, number=2)) as server:
        error = place.refusal(server.url)
        assert names(server) == []
    assert error.reason == f"no such build: {server.url}/{REPO} has no release b1"
    assert not error.trouble


def test_no_such_build_where_the_api_is_of_no_use(place: Place) -> None:
    with FakeServer(FakeReleases({}, api=Answer({}, 500))) as server:
        error = place.refusal(server.url)
    assert error.reason == f"no such build: {server.url}/{REPO} has no {NAME}"
    assert not error.trouble


def test_a_file_that_is_listed_and_not_there(place: Place) -> None:
    releases = FakeReleases({f"{NAME}.tar.gz": TAR})
    with FakeServer(
        lambda asked: releases(asked) if "/api/" in asked.path else Answer(b"", 404)
    ) as server:
        error = place.refusal(server.url)
    assert "no such file" in error.reason
    assert not error.trouble


@pytest.mark.parametrize("ref", ["master", "c0ffee00", "PR#1"])
def test_a_ref_without_a_number(place: Place, dead: str, ref: str) -> None:
    error = place.refusal(dead, Wanted(ref=parse(ref), commit=COMMIT))
    assert (error.reason, error.trouble) == ("no build number to ask for", False)


def test_a_number_that_is_another_commit_there(place: Place) -> None:
    """In a fork, say."""
    with FakeServer(FakeReleases({f"{NAME}.tar.gz": TAR})) as server:
        assert place.refusal(server.url, replace(B1, commit="decade0")).reason == (
            "b1 is commit c0ffee0000 there"
        )
        assert place.delivery(server.url, replace(B1, commit="c0ffee0")).commit == COMMIT


INSIDE: Mapping[str, tuple[bytes, str]] = {
    "breaks_off": (TAR[:-100], "breaks off"),
    "up": (tar_gz({**build(), "llama-b1/../../evil": b""}), "outside"),
    "none": (tar_gz({"llama-b1/llama-cli": SERVER}), "has no llama-server in it"),
    "two": (tar_gz({**build("a/"), **build("b/")}), "has 2 llama-server in it"),
    "link": (tar_gz({"llama-server": "llama", "llama": SERVER}), "has no llama-server in it"),
    "not_executable": (zipped(build(), mode=0o644), "not executable"),
}


@pytest.mark.parametrize("what", INSIDE)
def test_what_is_in_the_archive(place: Place, what: str) -> None:
    body, words = INSIDE[what]
    with FakeServer(FakeReleases({f"{NAME}.tar.gz": body})) as server:
        error = place.refusal(server.url)
    assert words in error.reason
    assert f"{NAME}.tar.gz" in error.reason
    # It is what the digest says: there is nothing better to be had.
    assert not error.trouble


def test_a_damaged_archive_of_no_digest(place: Place) -> None:
    name = f"{NAME}.tar.gz"
    with FakeServer(FakeReleases({name: TAR[:-100]}, digests={name: None})) as server:
        assert place.refusal(server.url).trouble


def test_an_archive_that_is_larger_than_the_disk(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(archive: Path, into: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(release, "unpack", full)
    with FakeServer(FakeReleases({f"{NAME}.tar.gz": TAR})) as server:
        error = place.refusal(server.url)
    assert error.reason == f"{NAME}.tar.gz cannot be unpacked: No space left on device"
    assert error.trouble
    assert "XDG_CACHE_HOME" in error.hint


def test_a_connection_that_breaks_off(place: Place) -> None:
    name, body = f"{NAME}.tar.gz", tar_gz(build(noise=random.Random(0).randbytes(200_000)))
    kept = {name: FakeFile(body, cuts=iter([1 << 17]))}
    with FakeServer(FakeReleases({name: body}, kept=kept)) as server:
        place.delivery(server.url)
        assert names(server) == [name, name]
        assert header(server.asked[-1], "Range") == f"bytes={1 << 17}-"


def test_a_later_run_goes_on(place: Place) -> None:
    """What has come is not in the directory, which is thrown away."""
    name, body = f"{NAME}.tar.gz", tar_gz(build(noise=random.Random(0).randbytes(200_000)))
    kept = {name: FakeFile(body, cuts=iter([1 << 17, 0, 0, 0, 0]))}
    with FakeServer(FakeReleases({name: body}, kept=kept)) as server:
        assert place.refusal(server.url).trouble
        shutil.rmtree(place.into)
        place.into.mkdir()
        server.asked.clear()
        place.delivery(server.url)
        assert header(server.asked[-1], "Range") == f"bytes={1 << 17}-"
        assert names(server) == [name]


@pytest.mark.parametrize("variable", ["GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"])
def test_a_token_is_for_the_api_alone(place: Place, variable: str) -> None:
    place.environ = {variable: "secret\n"}
    files = {f"{NAME}.tar.gz": TAR}
    with (
        FakeServer(FakeReleases(files)) as storage,
        FakeServer(FakeReleases(files, storage=storage.url)) as server,
    ):
        delivery = place.delivery(server.url)
        assert [header(asked, "Authorization") for asked in server.asked] == [
            "Bearer secret",
            None,
        ]
        assert [header(asked, "Authorization") for asked in storage.asked] == [None]
    assert delivery.source.startswith(server.url)


def test_no_token(place: Place) -> None:
    with FakeServer(FakeReleases({f"{NAME}.tar.gz": TAR})) as server:
        place.delivery(server.url)
        assert {header(asked, "Authorization") for asked in server.asked} == {None}


def test_a_token_is_not_sent_in_the_clear(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another host than this one would have it sent over the network; a proxy stands for it."""
    place.environ = {"GH_ENTERPRISE_TOKEN": "secret"}
    with FakeServer(FakeReleases({}, api=Answer({}, 403))) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        place.refusal("http://nobody.invalid")
        assert header(proxy.asked[0], "Authorization") is None


def test_a_token_that_makes_no_sense(place: Place) -> None:
    place.environ = {"GH_ENTERPRISE_TOKEN": "sec\nret \N{SNOWMAN}"}
    with FakeServer(FakeReleases({f"{NAME}.tar.gz": TAR})) as server:
        place.delivery(server.url)
    assert "makes no sense" in place.out.getvalue()


def test_who_asks_is_not_shown(place: Place) -> None:
    with FakeServer(FakeReleases({f"{NAME}.tar.gz": TAR})) as server:
        url = server.url.replace("://", "://me:secret@")
        assert "secret" not in place.delivery(url).source + place.out.getvalue()
        assert "secret" not in place.refusal(url, replace(B1, number=2)).reason


@pytest.mark.parametrize(
    "address", ["nonsense", "https://host", "https://host/owner", "ftp://host/a/b"]
)
def test_an_address_that_is_no_repository(place: Place, address: str) -> None:
    place.environ = {"LLAMA_HARNESS_RELEASES": address}
    error = place.refusal("")
    assert "LLAMA_HARNESS_RELEASES is no address" in error.reason
    assert "https://github.com/ggml-org/llama.cpp" in error.hint


def test_an_address_that_makes_no_sense(place: Place) -> None:
    place.environ = {"LLAMA_HARNESS_RELEASES": "http://[/a/b"}
    assert "makes no sense" in place.refusal("").reason


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        ("", "https://api.github.com/repos/ggml-org/llama.cpp/"),
        ("https://github.com/someone/fork.git", "https://api.github.com/repos/someone/fork/"),
        ("https://me@host:1/a/b/", "https://host:1/api/v3/repos/a/b/"),
        ("https://host/mirror/a/b", "https://host/api/v3/repos/a/b/"),
    ],
)
def test_where_the_api_is(
    place: Place, dead: str, address: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked: the proxy is down."""
    monkeypatch.setenv("HTTPS_PROXY", dead)
    place.environ = {"LLAMA_HARNESS_RELEASES": address}
    assert place.refusal("").trouble
    assert f"b1: {asked}releases/tags/b1 cannot be fetched" in place.out.getvalue()


# --- the numbers of all ---------------------------------------------------------------------------


def wanted(number: int, flavour: Flavour = Flavour.CPU) -> Wanted:
    return Wanted(ref=NumberRef(number), number=number, flavour=flavour)


def newest(*numbers: int) -> FakeReleases:
    """Releases with a build for the CPU each."""
    return FakeReleases({}, listed={n: [f"llama-b{n}-bin-ubuntu-x64.tar.gz"] for n in numbers})


def test_numbers_are_of_releases_that_have_a_build_of_the_kind(place: Place) -> None:
    releases = newest(9, 7)
    releases.listed = {
        **releases.listed,
        8: ["llama-b8-bin-win-cpu-x64.zip"],
        6: ["llama-b6-bin-ubuntu-vulkan-x64.zip"],
        5: [],
    }
    with FakeServer(releases) as server:
        rung = place.rung(server.url)
        assert rung.numbers(wanted(8), Steps("b8", None)) == {7, 9}
        assert rung.numbers(wanted(8, Flavour.VULKAN), Steps("b8", None)) == {6}
        assert rung.numbers(wanted(1), Steps("b1", None)) == {7, 9}  # these are all
        assert {asked.path for asked in server.asked} == {
            f"/api/v3/repos/{REPO}/releases?per_page=100"
        }


def test_numbers_before_the_newest_are_not_known(place: Place) -> None:
    with FakeServer(newest(*range(100, 200))) as server:
        rung = place.rung(server.url)
        with pytest.raises(NotHere, match="lists only the newest 100"):
            rung.numbers(wanted(99), Steps("b99", None))
        assert min(rung.numbers(wanted(100), Steps("b100", None))) == 100


@pytest.mark.parametrize(
    "api",
    [Answer(b"busy", 503), Answer(b"<html>"), Answer({"message": "no"}), Answer(b"", 404)],
    ids=["busy", "page", "object", "nothing"],
)
def test_numbers_that_nobody_tells(place: Place, api: Answer) -> None:
    with FakeServer(FakeReleases({}, api=api)) as server, pytest.raises(NotHere):
        place.rung(server.url).numbers(wanted(8), Steps("b8", None))


def test_numbers_of_another_system(place: Place) -> None:
    place.system = "Plan9"
    with pytest.raises(NotHere, match="no builds for cpu on Plan9"):
        place.rung("http://localhost:1").numbers(wanted(8), Steps("b8", None))
