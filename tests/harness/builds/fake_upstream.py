"""A git repository that passes for upstream's: a small CMake project with a history.

Its `llama-server` tells its own version and otherwise becomes a real one; a commit may change the
command line on the way, which is a fault, or not compile at all.
"""

from __future__ import annotations

import hashlib
import itertools
import subprocess
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

_CMAKE = """\
    cmake_minimum_required(VERSION 3.14)
    project(llama CXX)
    set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
    add_executable(llama-server server.cpp)
    target_compile_definitions(llama-server PRIVATE
        NUMBER="${LLAMA_BUILD_NUMBER}" COMMIT="${LLAMA_BUILD_COMMIT}")
    """

_SERVER = """\
    #include <cstdio>
    #include <cstring>
    #include <string>
    #include <vector>
    #include <unistd.h>

    int main(int argc, char ** argv) {
        for (int i = 1; i < argc; i++) {
            if (strcmp(argv[i], "--version") == 0) {
                fprintf(stderr, "version: %s (%s)\\n", NUMBER, COMMIT);
                return 0;
            }
        }
        std::vector<char *> words(argv, argv + argc);
        words.push_back(nullptr);
        @CHANGE@
        execv("@REAL@", words.data());
        perror("@REAL@");
        return 127;
    }
    """

# What a commit may do on the way.
RIGHT = ""
NO_PROMPT_CACHE = """\
for (int i = 1; i + 1 < argc; i++) {
    if (strcmp(argv[i], "--cache-ram") == 0) words[i + 1] = strdup("0");
}
"""
BROKEN = "does_not_compile();"


def project(directory: Path, real: Path, change: str = RIGHT) -> None:
    """Writes the project into an existing directory; its server becomes the real one."""
    source = dedent(_SERVER).replace("@CHANGE@", change).replace("@REAL@", str(real))
    (directory / "CMakeLists.txt").write_text(dedent(_CMAKE))
    (directory / "server.cpp").write_text(source)


@dataclass(slots=True)
class FakeUpstream:
    """A repository with a branch `master`, tags `bN` and heads of pull requests."""

    path: Path
    real: Path
    """The server that its builds become."""

    def __post_init__(self) -> None:
        self.git("init", "--quiet", "--initial-branch=master", cwd=self.path.parent)
        self.git("config", "uploadpack.allowFilter", "true")
        self.git("config", "uploadpack.allowAnySHA1InWant", "true")

    @property
    def url(self) -> str:
        """As a remote one is named, so that git takes the same way."""
        return self.path.as_uri()

    def commit(self, change: str = RIGHT, *, tag: bool = True) -> str:
        """One more commit on the branch that is checked out; its name."""
        project(self.path, self.real, change)
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", change.partition("\n")[0] or "right")
        if tag:
            self.git("tag", f"b{self.git('rev-list', '--count', 'HEAD')}")
        return self.git("rev-parse", "HEAD")

    def pull_request(self, number: int, change: str = RIGHT) -> str:
        """A pull request of one commit from master; its head."""
        self.git("checkout", "--quiet", "--detach", "master")
        head = self.commit(change, tag=False)
        self.git("update-ref", f"refs/pull/{number}/head", head)
        self.git("checkout", "--quiet", "master")
        return head

    def twins(self, *numbers: int) -> list[str]:
        """Two pull requests whose heads begin with the same seven digits; their heads."""
        text = self.git("cat-file", "commit", "HEAD") + "\n\n"
        seen: dict[str, bytes] = {}
        for count in itertools.count():
            body = f"{text}{count}\n".encode()
            name = hashlib.sha1(b"commit %d\0" % len(body) + body, usedforsecurity=False)
            short = name.hexdigest()[:7]
            if short in seen:
                break
            seen[short] = body
        heads = [self._written(content) for content in (seen[short], body)]
        for number, head in zip(numbers, heads, strict=True):
            self.git("update-ref", f"refs/pull/{number}/head", head)
        return heads

    def _written(self, commit: bytes) -> str:
        command = ["git", "hash-object", "-t", "commit", "-w", "--stdin"]
        done = subprocess.run(command, cwd=self.path, input=commit, check=True, capture_output=True)
        return done.stdout.decode().strip()

    def git(self, *words: str, cwd: Path | None = None) -> str:
        """What git says."""
        command = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
        where = [str(self.path)] if words[0] == "init" else []
        done = subprocess.run(
            [*command, *words, *where],
            cwd=cwd or self.path,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()
