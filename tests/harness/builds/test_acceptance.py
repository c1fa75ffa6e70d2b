"""A build is accepted once it has answered a request on this CPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.builds import acceptance
from harness.builds.acceptance import check_runs, is_accepted
from harness.builds.build import Build
from harness.errors import DoesNotRun, ServerError
from harness.server.launcher import parse_launcher
from harness.server.process import Program
from tests.harness.test_plugin import NP1, executable, suite

SUMS = ("of this test", None)
INFO = "0.00.024.459 I cmn  common_param: system_info: n_threads = 1 | CPU : "

CPUINFO = """\
processor\t: 0
model name\t: Some CPU 9000
flags\t\t: fpu pni ssse3 avx avx2 f16c fma bmi2

processor\t: 1
model name\t: Some CPU 9000
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where nothing was accepted yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "llama-cache-harness" / "accepted"


@pytest.fixture
def other_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU with AVX2 and no more."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(CPUINFO)
    monkeypatch.setattr(acceptance, "_CPUINFO", cpuinfo)


def dying(directory: Path, build: Build, *, features: str, signal: str = "ILL") -> Program:
    """A program that says what it was compiled for, and ends as that does on another CPU."""
    script = executable(
        directory / "llama-server", f"#!/bin/sh\necho '{INFO}{features}'\nkill -{signal} $$\n"
    )
    return Program(script, build.capabilities)


def test_a_build_that_answers_is_remembered(llama_build: Build, own_cache: Path) -> None:
    assert not is_accepted(SUMS)
    check_runs(llama_build.program, SUMS, title="it")
    assert is_accepted(SUMS)
    assert len([*own_cache.iterdir()]) == 1
    gone = Program(Path("/nowhere"), llama_build.capabilities)
    check_runs(gone, SUMS, title="it")  # nobody looks again


def test_another_binary_launcher_or_cpu_is_tried_itself(
    llama_build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_runs(llama_build.program, SUMS, title="it")
    assert not is_accepted(("another", None))
    assert not is_accepted(SUMS, ("taskset", "-c", "0"))
    (tmp_path / "cpuinfo").write_text(CPUINFO)
    monkeypatch.setattr(acceptance, "_CPUINFO", tmp_path / "cpuinfo")
    assert not is_accepted(SUMS)


def test_a_cache_that_cannot_be_written_is_no_trouble(llama_build: Build, own_cache: Path) -> None:
    own_cache.parent.mkdir(parents=True)
    own_cache.write_text("in the way")
    check_runs(llama_build.program, SUMS, title="it")


@pytest.mark.usefixtures("other_cpu")
@pytest.mark.parametrize(
    ("features", "uses"),
    [
        (
            "SSE3 = 1 | AVX2 = 1 | AVX512 = 1 | AVX512_VNNI = 1 | AMX_INT8 = 1 | REPACK = 1 |",
            "it uses AVX-512/AMX, which Some CPU 9000 does not have",
        ),
        ("AVX2 = 1 | AVX_VNNI = 1 |", "it uses AVX_VNNI, which Some CPU 9000 does not have"),
        (
            "AVX2 = 1 | AMX_INT8 = 0 |",
            "it ends with SIGILL at an instruction which Some CPU 9000 does not have",
        ),
        ("NEON = 1 |", "it ends with SIGILL at an instruction which Some CPU 9000 does not have"),
    ],
    ids=["amx", "vnni", "only_what_it_has", "nothing_known"],
)
def test_a_build_for_another_cpu_names_what_is_missing(
    llama_build: Build, tmp_path: Path, features: str, uses: str
) -> None:
    program = dying(tmp_path, llama_build, features=features)
    with pytest.raises(DoesNotRun) as caught:
        check_runs(program, SUMS, title="b10434 (7e4c0a9)", number=10434)
    assert caught.value.message == f"b10434 (7e4c0a9) does not run on this CPU: {uses}"
    assert "take wheel:0.10068.0" in caught.value.hint
    assert "llama-harness get sdist:b10434" in caught.value.hint
    assert not is_accepted(SUMS)


def test_a_wrapper_that_waits_for_its_server(llama_build: Build, tmp_path: Path) -> None:
    """Its shell makes exit code 132 of the signal."""
    program = dying(tmp_path, llama_build, features="")
    outer = executable(tmp_path / "outer", f"#!/bin/sh\n{program.binary}\nexit $?\n")
    with pytest.raises(DoesNotRun):
        check_runs(Program(outer, llama_build.capabilities), SUMS, title="it")


def test_other_trouble_is_not_the_cpus(llama_build: Build, tmp_path: Path) -> None:
    program = dying(tmp_path, llama_build, features="", signal="SEGV")
    with pytest.raises(ServerError, match="SIGSEGV"):
        check_runs(program, SUMS, title="it")


def test_pytest_says_it_in_one_line_and_ends_with_3(llama_build: Build, tmp_path: Path) -> None:
    binary = llama_build.origin.path
    dies = executable(
        tmp_path / "llama-server",
        f"#!/bin/sh\ncase $1 in --version|--help|--list-devices) exec {binary} $1;; esac\n"
        f"echo '{INFO}AVX512 = 1 |'\nkill -ILL $$\n",
    )
    for options in ([f"--llama-bin={dies}"], [f"--llama-bin={binary}", f"--llama-bin={dies}"]):
        done = suite(*options, "-k", NP1)
        assert done.returncode == 3
        (line,) = [line for line in done.stderr.splitlines() if line.strip()]
        assert line.startswith("ERROR: ")
        assert "does not run on this CPU" in line
        assert "collected" not in done.stdout
    without = suite("-k", NP1, environ={"LLAMA_SERVER_BIN_PATH": str(dies)})
    assert without.returncode == 3
    assert "does not run on this CPU" in without.stderr


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs qemu-x86_64 (qemu-user)")
@pytest.mark.parametrize(("cpu", "code"), [("Haswell", 0), ("Nehalem", 3)])
def test_on_an_emulated_cpu(llama_build: Build, cpu: str, code: int) -> None:
    """The prebuilt server needs AVX2, which the one has and the other has not."""
    if not llama_build.origin.provided:
        pytest.skip("what another server was compiled for is not known")
    launcher = f"qemu-x86_64 -cpu {cpu}"
    assert parse_launcher(launcher)[-1] == cpu
    some = "test_identical_request and np1-kvu-completion"
    done = suite("-k", some, "--llama-memory=llama", f"--llama-launcher={launcher}")
    assert done.returncode == code, done.stdout + done.stderr
    if code:
        assert f"does not run on this CPU under {launcher}: it " in done.stderr


def test_a_build_that_does_not_even_say_its_version(tmp_path: Path) -> None:
    dies = executable(tmp_path / "llama-server", "#!/bin/sh\nkill -ILL $$\n")
    done = suite(f"--llama-bin={dies}", "-k", NP1)
    assert done.returncode == 3
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert "does not run on this CPU: --version ends with SIGILL" in line


@pytest.mark.parametrize(
    "selection",
    [
        ("-k", f"test_article and llama-{NP1}"),
        ("-k", f"test_article and llama-{NP1}", "-n", "2"),
        (f"tests/cache/test_lora.py::test_article[llama-{NP1}-wide0]",),
        (f"tests/cache/test_lora.py::test_article[llama-{NP1}-wide0]", "-n", "2"),
    ],
    ids=["keyword", "keyword_n2", "node", "node_n2"],
)
@pytest.mark.parametrize(("cpu", "code"), [(True, 3), (False, 4)], ids=["cpu", "missing"])
def test_no_build_and_a_selection_by_model(
    tmp_path: Path, selection: tuple[str, ...], cpu: bool, code: int
) -> None:
    """Models are not known without a server: the selection is not what is wrong."""
    path = tmp_path / "llama-server"
    if cpu:
        executable(path, "#!/bin/sh\nkill -ILL $$\n")
    done = suite(*selection, environ={"LLAMA_SERVER_BIN_PATH": str(path)})
    assert done.returncode == code
    assert str(path) in done.stderr
