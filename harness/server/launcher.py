"""The command a server is started under, if any: a debugger, rr, taskset, a sanitizer wrapper."""

from __future__ import annotations

import shlex
from pathlib import Path
from shutil import which

from harness.errors import UsageProblem

# A server has no terminal (its log is a file), so a bare "gdb --args" would read the end of its
# input and leave. What people want from it is the backtrace of a crash in the log.
_GDB_BATCH = ("-batch", "-ex", "run", "-ex", "thread apply all backtrace")
_GDB_SCRIPTED = {"-batch", "--batch", "-x", "--command", "-ex", "--eval-command"}


def parse_launcher(text: str | None) -> tuple[str, ...]:
    """The words of `--llama-launcher`; plain `gdb --args` becomes a batch run with a backtrace."""
    if not text:
        return ()
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageProblem(f"--llama-launcher={text!r} cannot be read: {error}") from None
    if not words or which(words[0]) is None:
        raise UsageProblem(
            f"--llama-launcher={text!r}: no such program", hint="it must be on the PATH or a path"
        )
    program, *rest = words
    if "/" in program:  # pytest may change directory
        program = str(Path(program).absolute())
    options = {word.partition("=")[0] for word in rest}
    if Path(program).name == "gdb" and not _GDB_SCRIPTED & options:
        return (program, *_GDB_BATCH, *rest)
    return (program, *rest)
