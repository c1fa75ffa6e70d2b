"""What is found out about a binary by running it, and what is said of one that cannot be used."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.builds.build import Build
from harness.errors import UsageProblem
from harness.prompts import prose
from harness.server import capabilities as capabilities_module
from harness.server.capabilities import Capabilities, probe
from harness.server.config import _RESERVED, FLAGS
from harness.server.flag_values import FlagValues
from harness.server.process import Program
from tests.harness.server.conftest import MakeServer, WriteScript
from tests.harness.server.processes import Identity, wait_until_gone

VERSION = "version: 9670 (02810c7aa)\nbuilt with GNU 11.4.0 for Linux x86_64\n"

HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
--version                               show version and build info
-kvu,  --kv-unified, -no-kvu, --no-kv-unified
                                        use single unified KV buffer
                                        (env: LLAMA_ARG_KV_UNIFIED)
-lv,   --verbosity, --log-verbosity N   Set the verbosity threshold. Values:
                                         - 3: info
                                         - 4: trace (more info)
                                         - 5: debug
                                        (default: 3)
-cram, --cache-ram N                    set the maximum cache size in MiB (default: 8192, -1 - no
                                        limit, 0 - disable)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use

----- example-specific params -----

--slot-save-path PATH                   path to save slot kv cache (default: disabled)
--lora-scaled FNAME:SCALE,...           path to LoRA adapter
--fim-qwen-1.5b-default                 use default Qwen 2.5 Coder 1.5B
"""

DEVICES = "Available devices:\n  Vulkan0: A GPU (8192 MiB, 8000 MiB free)\n"

Fake = Callable[..., Path]
"""Writes a program that answers like a llama-server."""


@pytest.fixture
def fake(write_script: WriteScript, tmp_path: Path) -> Fake:
    def write(version: str = VERSION, help: str = HELP, devices: str = DEVICES) -> Path:
        for option, text in (("version", version), ("help", help), ("list-devices", devices)):
            (tmp_path / f"answer--{option}").write_text(text)
        return write_script(f"cat '{tmp_path}'/answer\"$1\"")

    return write


# --- the real one ---------------------------------------------------------------------------------


def test_a_real_server(program: Program) -> None:
    found = probe(program.binary)
    assert found == program.capabilities
    assert found.commit is None or re.fullmatch("[0-9a-f]{7,40}", found.commit)
    assert found.build_number is None or found.build_number > 9000
    assert "version:" in found.version
    for group in (
        ("-np", "--parallel"),
        ("-fa", "--flash-attn"),
        ("-cram", "--cache-ram"),
        ("-h", "--help", "--usage"),
        ("--slot-save-path",),
    ):
        assert group in found.flags


def test_the_provided_server_knows_every_flag_the_harness_names(llama_build: Build) -> None:
    """A flag with a typing error would pass for one that every build lacks."""
    if not llama_build.origin.provided:
        pytest.skip("another build may lack some of them")
    named = {*_RESERVED, *(word for flag in FLAGS.values() for word in (flag.on, flag.off) if word)}
    assert [flag for flag in sorted(named) if not llama_build.capabilities.supports(flag)] == []


def test_the_log_of_a_real_server_has_decisions_and_no_prompts(
    program: Program, make_server: MakeServer
) -> None:
    """At one level more both would be there: the words do get as far as the log."""
    assert program.capabilities.log_level in (3, 4)
    logs = {}
    for more in (0, 1):
        level = program.capabilities.log_level + more
        louder = replace(program, capabilities=replace(program.capabilities, log_level=level))
        with make_server(program=louder) as server:
            for text in ("zyxwvut " * 20, prose("other", 160).text, "zyxwvut " * 20):
                server.client.completion(text)
                server.client.completion(text, stream=True)
            server.client.chat([{"role": "user", "content": "zyxwvut " * 20}])
        logs[more] = server.log.path.read_text(errors="replace")
    assert "zyxwvut" not in logs[0]
    assert "prompt cache" in logs[0]
    assert "zyxwvut" in logs[1]


# --- what is read from its answers ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "commit", "number"),
    [
        ("version: 9670 (02810c7aa)", "02810c7aa", 9670),
        ("version: 0.1.0-dev (build 10434, commit 7e4c0a9)", "7e4c0a9", 10434),
        # A clone without history counts itself as the first build.
        ("version: 1 (7e4c0a9)", "7e4c0a9", None),
        ("version: 50 (7e4c0a9)", "7e4c0a9", None),  # a clone of some depth
        ("version: 0.1.0-dev (build 1, commit 7e4c0a9)", "7e4c0a9", None),
        # A tarball knows nothing.
        ("version: 0 (unknown)", None, None),
        ("version: of my own making", None, None),
        ("version: 9670 (02810c7aa-dirty)", None, None),
    ],
)
def test_version(fake: Fake, version: str, commit: str | None, number: int | None) -> None:
    found = probe(fake(version=f"ggml: loading\n{version}\nbuilt with GNU 11.4.0\n"))
    assert (found.version, found.commit, found.build_number) == (version, commit, number)


def test_no_version_at_all(fake: Fake) -> None:
    found = probe(fake(version=""))
    assert (found.version, found.commit, found.build_number) == ("unknown", None, None)


def test_flags_are_grouped_as_in_the_help(fake: Fake) -> None:
    assert probe(fake()).flags == (
        ("-h", "--help", "--usage"),
        ("--version",),
        ("-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified"),
        ("-lv", "--verbosity", "--log-verbosity"),
        ("-cram", "--cache-ram"),
        ("-fa", "--flash-attn"),
        ("--slot-save-path",),
        ("--lora-scaled",),
        ("--fim-qwen-1.5b-default",),
    )


def test_what_flags_take_is_read_of_the_same_entries(fake: Fake) -> None:
    found = probe(fake())
    assert [values.flag for values in found.values] == [names[0] for names in found.flags]
    assert found.takes("--cache-ram") == FlagValues(flag="-cram", count=1, number=True)
    assert found.takes("--flash-attn") == FlagValues(
        flag="-fa", count=1, words=("on", "off", "auto")
    )
    assert found.takes("--version") == FlagValues(flag="--version", count=0)
    assert found.takes("--no-such-flag") is None


def test_spellings(fake: Fake) -> None:
    found = probe(fake())
    assert found.supports("-no-kvu")
    assert not found.supports("--no-such-flag")
    assert not found.supports("--cache")
    assert found.spellings("--flash-attn") == ("-fa", "--flash-attn")
    assert found.spellings("--no-such-flag") == ("--no-such-flag",)


@pytest.mark.parametrize(
    ("help", "level"),
    [
        (HELP, 4),
        (HELP.replace("4: trace (more info)", "4: debug"), 3),
        (re.sub(r"-lv,.*?(?=-cram)", "", HELP, flags=re.DOTALL), 3),
        # Another flag's text says nothing of levels.
        (HELP.replace("4: trace", "4: debug") + "--x N   like 4: trace\n-v   more\n", 3),
    ],
    ids=["trace", "no_trace", "no_levels", "elsewhere"],
)
def test_log_level(fake: Fake, help: str, level: int) -> None:
    """Where 4 is not the trace level it is the one that prints prompts."""
    assert probe(fake(help=help)).log_level == level


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        (DEVICES, ("Vulkan0: A GPU (8192 MiB, 8000 MiB free)",)),
        ("Available devices:\n", ()),
        ("Available devices:\n  (none)\n", ()),
        ("ggml_vulkan: no devices\n", ()),
        ("noise\nAvailable devices:\n  CUDA0: a\n  CUDA1: b\n", ("CUDA0: a", "CUDA1: b")),
    ],
)
def test_devices(fake: Fake, text: str, devices: tuple[str, ...]) -> None:
    assert probe(fake(devices=text)).devices == devices


def test_there_and_back_as_plain_data(fake: Fake) -> None:
    found = probe(fake())
    assert Capabilities.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_probe_is_not_the_users_environment(
    write_script: WriteScript, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = fake().read_text().partition("\n")[2]
    monkeypatch.setenv("LLAMA_ARG_CACHE_RAM", "0")
    probe(write_script(f'test -z "$LLAMA_ARG_CACHE_RAM" || exit 1\n{body}'))


# --- what cannot be used --------------------------------------------------------------------------


def problem_with(binary: Path) -> UsageProblem:
    """What is said of `binary`: always one line that names it, and what to do."""
    with pytest.raises(UsageProblem) as caught:
        probe(binary)
    assert str(binary) in caught.value.message
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return caught.value


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "does not exist" in problem_with(tmp_path / "llama-server").message


def test_a_directory(tmp_path: Path) -> None:
    problem = problem_with(tmp_path)
    assert "is a directory" in problem.message
    assert "did you mean" not in problem.hint
    (tmp_path / "llama-server").touch()
    assert f"did you mean {tmp_path}/llama-server?" in problem_with(tmp_path).hint


def test_a_file_that_is_not_executable(write_script: WriteScript) -> None:
    path = write_script("true")
    path.chmod(0o644)
    problem = problem_with(path)
    assert "is not executable" in problem.message
    assert problem.hint == f"chmod +x {path}"


def executable(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o755)
    return path


EM_VAX = 75
"""No emulator for it is going to be registered with the system."""

FOREIGN_ELF = struct.pack(
    "<4sBBBxxxxxxxxxHHIQQQIHHHHHH",
    *(b"\x7fELF", 2, 1, 1, 2, EM_VAX, 1, 0x400000, 64, 0, 0, 64, 56, 1, 0, 0, 0),
)


@pytest.mark.parametrize(
    "content",
    [FOREIGN_ELF, FOREIGN_ELF[:20], b"", b"\x7fELF"],
    ids=["other_machine", "cut_off", "empty", "magic_only"],
)
def test_a_program_for_no_machine_here(tmp_path: Path, content: bytes) -> None:
    problem = problem_with(executable(tmp_path / "llama-server", content))
    assert "cannot be run" in problem.message
    assert os.uname().machine in problem.hint


def test_a_script_whose_interpreter_is_missing(tmp_path: Path) -> None:
    problem = problem_with(executable(tmp_path / "llama-server", b"#!/no/such/interpreter\n"))
    assert "cannot be run" in problem.message
    assert "interpreter" in problem.hint


def test_a_program_that_is_something_else() -> None:
    problem = problem_with(Path("/bin/true"))
    assert "is not a llama-server" in problem.message


def test_a_program_of_llama_cpp_that_is_not_the_server(fake: Fake) -> None:
    without = "".join(line for line in HELP.splitlines(True) if "--slot-save-path" not in line)
    problem = problem_with(fake(help=without))
    assert "is not a llama-server" in problem.message


def test_a_library_that_is_missing(write_script: WriteScript) -> None:
    path = write_script(
        "echo 'llama-server: error while loading shared libraries: libgomp.so.1: cannot open "
        "shared object file: No such file or directory' >&2; exit 127"
    )
    problem = problem_with(path)
    assert "exit code 127" in problem.message
    assert "libgomp.so.1: cannot open" in problem.message
    assert "libgomp1" in problem.hint


def test_a_library_of_the_build_that_is_missing(write_script: WriteScript) -> None:
    path = write_script(
        "echo 'llama-server: error while loading shared libraries: libllama.so.0: cannot open "
        "shared object file: No such file or directory' >&2; exit 127"
    )
    problem = problem_with(path)
    assert "libllama.so.0" in problem.hint
    assert "folder together" in problem.hint
    assert "apt-get" not in problem.hint


@pytest.mark.parametrize(
    ("version", "library"), [("GLIBC_2.38", "C library"), ("GLIBCXX_3.4.30", "C++ library")]
)
def test_a_system_that_is_too_old(write_script: WriteScript, version: str, library: str) -> None:
    path = write_script(
        f'echo "$0: /lib/some.so: version \\`{version}\' not found (required by $0)" >&2\n'
        "echo 'and more' >&2; exit 1"
    )
    problem = problem_with(path)
    assert f"`{version}' not found" in problem.message
    assert f"system's {library} is older than the binary needs ({version})" in problem.hint


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        ("exit 3", "exit code 3): no output"),
        ("echo one; echo two; exit 1", "exit code 1): two"),
        ("kill -SEGV $$", "signal 11): no output"),
        ("printf '\\377\\n'; exit 1", "exit code 1): \N{REPLACEMENT CHARACTER}"),
    ],
    ids=["silent", "talking", "crashing", "babbling"],
)
def test_a_program_that_fails(write_script: WriteScript, body: str, ending: str) -> None:
    assert problem_with(write_script(body)).message.endswith(ending)


@pytest.mark.parametrize("then", ["wait", "exit 0"], ids=["itself", "what_it_left"])
def test_a_program_that_hangs(
    then: str, write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended, and so is what it started: a wrapper script is not its server."""
    monkeypatch.setattr(capabilities_module, "PROBE_SECONDS", 0.5)
    pids = tmp_path / "pids"
    path = write_script(f"sleep 300 & echo $! $$ > '{pids}'; {then}")
    problem = problem_with(path)
    assert "did not end" in problem.message
    wait_until_gone(Identity.of(int(pid)) for pid in pids.read_text().split())
