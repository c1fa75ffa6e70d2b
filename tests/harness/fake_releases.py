"""A GitHub server with one release of llama.cpp; `FakeServer` serves it."""

from __future__ import annotations

import io
import re
import stat
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.harness.fake_file import FakeFile
from tests.harness.fake_http import Answer, Asked
from tests.harness.fake_hub import sha256

REPO = "ggml-org/llama.cpp"
COMMIT = "c0ffee" + "0" * 34
SERVER = b"#!/bin/sh\necho version: 1\n"
LIBRARY = b"\x7fELF" + bytes(range(256)) * 20


@dataclass
class FakeReleases:
    """Answers as GitHub Enterprise does, whose API is on the same host as its files."""

    files: Mapping[str, bytes]
    number: int = 1
    commit: str = COMMIT
    digests: Mapping[str, str | None] = field(default_factory=dict)
    """What is said of files instead of what they are."""
    listed: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Numbers of the newest releases, with the names of their files."""
    api: Answer | None = None
    """What the API answers, whatever it is asked."""
    kept: Mapping[str, FakeFile] = field(default_factory=dict)
    """Files that are sent in another way."""
    storage: str = ""
    """The address of another host, where the files themselves are."""

    def __call__(self, asked: Asked) -> Answer:
        path = urlsplit(asked.path).path
        if path.startswith("/api/"):
            return self.api or self._release(path)
        match = re.fullmatch(rf"/{REPO}/releases/download/b{self.number}/([^/]+)", path)
        name = match[1] if match else ""
        if name not in self.files:
            return Answer(b"Not Found", 404)
        if self.storage:
            return Answer(b"", 302, headers={"Location": f"{self.storage}{path}?sig=secret"})
        return self.kept.get(name, FakeFile(self.files[name]))(asked)

    def _release(self, path: str) -> Answer:
        if path == f"/api/v3/repos/{REPO}/releases":
            return Answer(
                [
                    {"tag_name": f"b{number}", "assets": [{"name": name} for name in names]}
                    for number, names in self.listed.items()
                ]
            )
        if path != f"/api/v3/repos/{REPO}/releases/tags/b{self.number}":
            return Answer({"message": "Not Found"}, 404)
        assets = [self._asset(name, body) for name, body in self.files.items()]
        return Answer({"target_commitish": self.commit, "assets": assets, "draft": False})

    def _asset(self, name: str, body: bytes) -> dict[str, Any]:
        digest = self.digests.get(name, f"sha256:{sha256(body)}")
        return {"name": name, "size": len(body), "digest": digest, "state": "uploaded"}


def tar_gz(files: Mapping[str, bytes | str]) -> bytes:
    """An archive of files that are all executable; a str is what a symbolic link points to."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def zipped(files: Mapping[str, bytes | str], mode: int = 0o755) -> bytes:
    """The same as a zip."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            kind = stat.S_IFLNK if isinstance(content, str) else stat.S_IFREG
            info.external_attr = (kind | mode) << 16
            archive.writestr(info, content)
    return packed.getvalue()


def build(top: str = "llama-b1/", **more: bytes | str) -> dict[str, bytes | str]:
    """What an archive of a server with shared libraries holds."""
    return {
        f"{top}llama-server": SERVER,
        f"{top}libllama.so": "libllama.so.0",
        f"{top}libllama.so.0": LIBRARY,
        **{f"{top}{name}": content for name, content in more.items()},
    }
