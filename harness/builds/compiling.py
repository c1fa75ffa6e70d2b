"""What the output of CMake and of compilers says of a build that failed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.builds.base import NotHere

# The machine's fault, not the source's: nothing is known of whether it builds.
_TROUBLE = (
    (
        r"Killed signal|terminated with signal 9|due to signal 9|: Killed$|\[Killed\]"
        r"|command failed due to signal|virtual memory exhausted|cc1plus: out of memory"
        r"|LLVM ERROR: out of memory",
        "a compiler was killed, or ran out of memory",
        "CMAKE_BUILD_PARALLEL_LEVEL=1 needs less",
    ),
    (
        r"No CMAKE_C(XX)?_COMPILER could be found|CMAKE_C(XX)?_COMPILER not set",
        "there is no C++ compiler",
        "Debian, Ubuntu: apt-get install g++",
    ),
    (
        r"is not able to compile a simple test program",
        "the C++ compiler does not work",
        "see the log; CXX and CXXFLAGS are taken from the environment",
    ),
    (
        r"unable to find a build program",
        "there is no build program",
        "Debian, Ubuntu: apt-get install ninja-build",
    ),
    (
        r"CMake \d\S* or higher is required",
        "its CMake is too old",
        "pip install cmake has a newer one",
    ),
    (
        r"CUDA Toolkit not found|Failed to find nvcc|CMAKE_CUDA_COMPILER could be",
        "there is no CUDA toolkit",
        "flavour cpu needs none",
    ),
    (
        r"Could NOT find Vulkan|provided by \"SPIRV-Headers\"",
        "there is no Vulkan SDK",
        "Debian, Ubuntu: apt-get install libvulkan-dev glslc spirv-headers",
    ),
    (
        r"ccache: error: .*(Permission denied|Read-only)",
        "ccache cannot write",
        "CCACHE_DIR names another directory",
    ),
)
_COMPILER_ERROR = re.compile(r"^\S.*?:\d+(:\d+)?: (fatal )?error: .+|^\S+\(\d+\): error.*: .+")
_LINK_ERROR = re.compile(r"undefined reference to .+|ld: .*(cannot find|error).*|^collect2: error")
_CMAKE_ERROR = re.compile(r"^CMake Error(?: at (?P<where>\S+))?.*?:\s*(?P<text>.*)$")


def trouble(output: str) -> NotHere | None:
    """What about the machine made a build fail; None where it was the source."""
    for pattern, reason, hint in _TROUBLE:
        if re.search(pattern, output, re.MULTILINE):
            return NotHere(reason, hint=hint, trouble=True)
    return None


def first_error(output: str) -> str | None:
    """The first error of a compiler, a linker or CMake, in one line."""
    lines = [line.strip() for line in output.splitlines()]
    for pattern in (_COMPILER_ERROR, _LINK_ERROR):
        for line in lines:
            if pattern.search(line):
                return line
    return next(_cmake_errors(lines), None)


def _cmake_errors(lines: list[str]) -> Iterator[str]:
    """CMake says where in one line, and what in the next one that is not empty."""
    for number, line in enumerate(lines):
        if match := _CMAKE_ERROR.match(line):
            rest = filter(None, lines[number + 1 :])
            text = match["text"] or next(rest, "")
            if text.endswith(":"):
                text = f"{text} {next(rest, '')}"
            where = f"{match['where']}: " if match["where"] else ""
            yield f"CMake: {where}{text}"
