"""What a person can say to pytest: the options, what is refused, and how to say it again."""

from __future__ import annotations

import itertools
import os
import shlex
from pathlib import Path

import pytest

from harness.builds.base import Flavour
from harness.builds.build import Build
from harness.builds.ref import GRAMMAR
from harness.errors import UsageProblem
from harness.models.published import PUBLISHED
from harness.models.spec import Model
from harness.models.synthetic.store import DEFAULT, MODELS
from harness.server.device import AUTO, DEVICES
from harness.session import DEFAULT_SECONDS, GENERATED, check_seconds


def add_options(parser: pytest.Parser) -> None:
    """One group of options, all prefixed."""
    parser.addini(
        "llama_harness", "this project tests llama-server (llama-cache-harness)", type="bool"
    )
    group = parser.getgroup("llama-cache", "KV-cache reuse of llama-server (llama-cache-harness)")
    group.addoption(
        "--llama-bin",
        action="append",
        default=[],
        metavar="PATH",
        help="llama-server to test; may be repeated. Default: $LLAMA_SERVER_BIN_PATH, llama-server "
        "on the PATH, the installed wheel",
    )
    group.addoption(
        "--llama-ref",
        action="append",
        default=[],
        metavar="REF",
        help=f"build of llama-server to test, obtained where it is not kept already: {GRAMMAR}. "
        "May be repeated",
    )
    group.addoption(
        "--llama-flavour",
        choices=[flavour.value for flavour in Flavour],
        default=Flavour.CPU.value,
        help="what builds of --llama-ref are to compute on (default: %(default)s)",
    )
    group.addoption(
        "--llama-url",
        action="append",
        default=[],
        metavar="URL",
        help="http://HOST:PORT of a llama-server that you started on this machine, under a "
        "debugger, say: scenarios that need just such a server, fresh, are tested on it",
    )
    group.addoption(
        "--llama-model",
        default=GENERATED,
        metavar="PATH|NAME",
        help="GGUF model to test with (default: %(default)s, tiny exact ones with two adapters), "
        f"or one to fetch from the Hugging Face hub: {', '.join(PUBLISHED)}",
    )
    group.addoption(
        "--llama-memory",
        metavar="KINDS",
        help="generated models to test with, by how they remember (dense, moe, mla, swa, "
        f"recurrent, hybrid: one of each) or by name ({', '.join(MODELS)}), separated by commas, "
        f"or all (default: {DEFAULT})",
    )
    group.addoption(
        "--llama-lora",
        action="append",
        default=[],
        metavar="PATH",
        help="LoRA adapter for --llama-model; twice for scenarios that need two",
    )
    group.addoption(
        "--llama-arg",
        action="append",
        default=[],
        metavar="ARGS",
        help="further llama-server arguments, e.g. --llama-arg='-fa on'; where they contradict "
        "what a scenario needs, it is listed as not tested",
    )
    group.addoption(
        "--llama-device",
        choices=DEVICES,
        default=AUTO,
        help="where servers compute: all layers and KV are put there, which the server's own "
        "report must say. auto is the CPU for the prebuilt server, and what a server you pass "
        "chooses itself (default: %(default)s)",
    )
    group.addoption(
        "--llama-launcher",
        metavar="COMMAND",
        help="start servers under this command, e.g. 'gdb --args', 'rr record', 'taskset -c 0'",
    )
    group.addoption(
        "--llama-kv-unified",
        choices=("on", "off", "both"),
        default="both",
        help="test with unified KV, without, or both (default: %(default)s)",
    )
    group.addoption(
        "--known-bugs",
        choices=("auto", "xfail", "fail"),
        default="auto",
        help="known upstream bugs: expected failures, on builds of the commits they are known for "
        "(xfail), or failures (fail). auto is xfail on the installed wheel on the CPU, and fail "
        "elsewhere (default: %(default)s)",
    )
    group.addoption(
        "--llama-report", metavar="PATH", help="write a ledger: one JSON object a line, no prompts"
    )
    group.addoption(
        "--llama-timeout",
        type=float,
        default=DEFAULT_SECONDS,
        metavar="SECONDS",
        help="how long a server may take to get ready, and the requests of one scenario to be "
        "answered (default: %(default)g)",
    )
    group.addoption(
        "--llama-keep",
        metavar="DIR",
        help="keep server logs and slot files of scenarios that fail in this directory",
    )


def options_given(config: pytest.Config) -> bool:
    """Whether a person means to test a server, rather than to run some tests."""
    options = ("bin", "ref", "url", "arg", "lora", "launcher", "report")
    return (
        any(config.getoption(f"--llama-{option}") for option in options)
        or config.getoption("--llama-memory") is not None
        or config.getoption("--llama-device") != AUTO
        or config.getoption("--llama-model") != GENERATED
    )


def check_options(config: pytest.Config) -> None:
    """Raises `UsageError` for what can be told from the words alone."""
    _refuse_separate_paths(config)
    _check_seconds(config.getoption("--llama-timeout"))
    if config.getoption("--llama-flavour") != Flavour.CPU and not config.getoption("--llama-ref"):
        raise pytest.UsageError("--llama-flavour is for builds of --llama-ref, and there is none")
    urls = config.getoption("--llama-url")
    if len(urls) > 1:
        raise pytest.UsageError("--llama-url was given twice: one server is attached to")
    if urls and getattr(config.option, "dist", "no") != "no":
        raise pytest.UsageError(
            "--llama-url: there is one server, and scenarios want it for themselves (leave out -n)"
        )


def rerun(config: pytest.Config, item: pytest.Item, build: Build, model: Model) -> str:
    """A line that runs just this scenario again, on this build."""
    path = os.path.relpath(item.path, config.invocation_params.dir)
    function, _, brackets = item.name.partition("[")
    parts = [part for part in brackets.removesuffix("]").split("-") if part != build.id]
    variant = f"[{'-'.join(parts)}]" if parts[0] else ""
    words = ["pytest", f"{path}::{in_class(item, function)}{variant}"]
    if config.getoption("--llama-memory") is not None:
        words.append(f"--llama-memory={model.name}")
    if urls := config.getoption("--llama-url"):
        words.append(f"--llama-url={urls[0]}")
    elif build.origin.ref is not None:
        words.append(f"--llama-ref={build.origin.ref}")
        if (flavour := config.getoption("--llama-flavour")) != Flavour.CPU:
            words.append(f"--llama-flavour={flavour}")
    elif not build.origin.provided:  # a server that is passed runs otherwise than the wheel's
        words.append(f"--llama-bin={build.origin.path}")
    if (model := config.getoption("--llama-model")) != GENERATED:
        words.append(f"--llama-model={model}")
    for option in ("--llama-lora", "--llama-arg"):
        words += [f"{option}={value}" for value in config.getoption(option)]
    if (mode := config.getoption("--known-bugs")) != "auto":
        words.append(f"--known-bugs={mode}")
    if (unified := config.getoption("--llama-kv-unified")) != "both":
        words.append(f"--llama-kv-unified={unified}")
    if (device := config.getoption("--llama-device")) != AUTO:
        words.append(f"--llama-device={device}")
    if launcher := config.getoption("--llama-launcher"):
        words.append(f"--llama-launcher={launcher}")
    if (seconds := config.getoption("--llama-timeout")) != DEFAULT_SECONDS:
        words.append(f"--llama-timeout={seconds:g}")
    return shlex.join(words)


def in_class(item: pytest.Item, function: str) -> str:
    """Return the name of a test function with the classes it is in, as a node id has it."""
    classes = [node.name for node in item.listchain() if isinstance(node, pytest.Class)]
    return "::".join([*classes, function])


def _check_seconds(seconds: float) -> None:
    try:
        check_seconds("--llama-timeout", seconds)
    except UsageProblem as problem:
        raise pytest.UsageError(str(problem)) from None


def _refuse_separate_paths(config: pytest.Config) -> None:
    """`--llama-bin PATH` as two words, where pytest took the path for its root directory.

    It looks for the configuration before it knows our options. The suite would run without its
    own settings, and harness tests along with it.
    """
    words = [str(word) for word in config.invocation_params.args]
    here = config.invocation_params.dir
    for option, value in itertools.pairwise(words):
        if not option.startswith("--llama-") or "=" in option or not Path(value).exists():
            continue
        found = config.inipath.parent if config.inipath else None
        if found is None or (
            found in Path(value).absolute().parents and found not in (here, *here.parents)
        ):
            raise pytest.UsageError(
                f"write {option}={value}, with '=': "
                "pytest takes a separate word for a path of tests"
            )
