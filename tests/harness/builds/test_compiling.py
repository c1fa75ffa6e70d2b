from __future__ import annotations

import pytest

from harness.builds.compiling import first_error, trouble

GCC = """\
[12/80] Building CXX object tools/server/CMakeFiles/server.dir/server.cpp.o
/src/llama.cpp/tools/server/server.cpp: In function 'int main()':
/src/llama.cpp/tools/server/server.cpp:10:5: warning: unused variable 'error: x' [-Wunused]
/src/llama.cpp/tools/server/server.cpp:12:5: error: 'foo' was not declared in this scope
/src/llama.cpp/tools/server/server.cpp:13:5: error: 'bar' was not declared in this scope
ninja: build stopped: subcommand failed.
"""
LINKER = """\
/usr/bin/ld: server.o: in function `main':
server.cpp:(.text+0x5): undefined reference to `llama_decode'
collect2: error: ld returned 1 exit status
"""
CMAKE = """\
-- The CXX compiler identification is GNU 12.2.0
CMake Error at ggml/CMakeLists.txt:24 (find_package):

  Could not find a package configuration file provided by "Foo"

-- Configuring incomplete, errors occurred!
"""
INCLUDE = "server.cpp:1:10: fatal error: nlohmann/json.hpp: No such file or directory\n"


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (GCC, "/src/llama.cpp/tools/server/server.cpp:12:5: error: 'foo' was not declared in this "
         "scope"),
        (LINKER, "server.cpp:(.text+0x5): undefined reference to `llama_decode'"),
        (CMAKE, "CMake: ggml/CMakeLists.txt:24: Could not find a package configuration file "
         'provided by "Foo"'),
        (INCLUDE, INCLUDE.strip()),
        ("ninja: build stopped\n", None),
    ],
    ids=["compiler", "linker", "cmake", "include", "none"],
)  # fmt: skip
def test_first_error(output: str, error: str | None) -> None:
    assert first_error(output) == error
    assert trouble(output) is None


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("c++: fatal error: Killed signal terminated program cc1plus", "memory"),
        ("collect2: fatal error: ld terminated with signal 9 [Killed]", "memory"),
        ("clang: error: unable to execute command: Killed", "memory"),
        ("c++: internal compiler error: Killed (program cc1plus) [Killed]", "memory"),
        ("nvcc error : 'cicc' died due to signal 9 (Kill signal)", "memory"),
        ("LLVM ERROR: out of memory", "memory"),
        ("ccache: error: failed to create /x: Permission denied", "ccache"),
        ("  CMake 3.28 or higher is required.  You are running version 3.25.1", "CMake"),
        ('  by "SPIRV-Headers" provided by "SPIRV-Headers" with any of', "Vulkan"),
        ("CMake Error at CMakeLists.txt:2 (project):\n  No CMAKE_CXX_COMPILER could be found.",
         "no C++ compiler"),
        ("  Could NOT find Vulkan (missing: Vulkan_LIBRARY)", "Vulkan"),
        ("  CUDA Toolkit not found", "CUDA"),
    ],
)  # fmt: skip
def test_trouble_of_the_machine_is_no_error_of_the_source(output: str, reason: str) -> None:
    found = trouble(f"-- something else\n{output}\n")
    assert found is not None
    assert reason in found.reason
    assert found.trouble
    assert found.hint
