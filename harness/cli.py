"""The `llama-harness` command: its table of commands, its parser and its exit codes.

Only the module of the command that was named is imported.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import harness
from harness.commands.output import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NO_VERDICT,
    EXIT_NOT_OBTAINED,
    EXIT_USAGE,
    printed,
)
from harness.errors import HarnessError, NotObtained, NoVerdict, UsageProblem

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


@dataclass(frozen=True, slots=True)
class Command:
    """Name the module of a command and describe the command in one line."""

    module: str
    """Below `harness.commands`; its function `add` declares the arguments."""
    help: str


COMMANDS: Mapping[str, Command] = {
    "check": Command("check", "say whether a build may be deployed with your flags and model"),
    "compare": Command("compare", "run the suite on two builds and print what changed"),
    "get": Command("get", "obtain a build and print the path of its llama-server"),
    "builds": Command("builds", "list the builds that are kept, or remove some"),
    "pins": Command("pins", "list the builds this project tracks, or check them"),
    "probe": Command("probe", "print what a llama-server binary is, as JSON"),
    "suite": Command("suite", "print where the suite is, as an argument for pytest"),
    "ledger": Command("ledger", "print what each request of a run reused, and why no more"),
    "by-memory": Command("by_memory", "print what each kind of memory reused, as Markdown"),
    "model": Command("model", "print a generated model as arguments for llama-server"),
    "make-lora": Command("make_lora", "write a random LoRA adapter for a model"),
}
"""All commands, in the order of the help."""

_EPILOG = """\
llama-harness COMMAND --help lists what a command takes. Without a command this help
is printed, with exit code 4: a script that lost its command does not pass.
"""
_CODES = {UsageProblem: EXIT_USAGE, NotObtained: EXIT_NOT_OBTAINED, NoVerdict: EXIT_NO_VERDICT}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    if sys.stderr is None:  # closed by whoever started us
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115  # to the end of the process
    if isinstance(sys.stdout, io.TextIOWrapper):  # a step may have any name
        sys.stdout.reconfigure(errors="backslashreplace")
    return exit_code("llama-harness", lambda: _run(words))


def exit_code(program: str, command: Callable[[], int]) -> int:
    """Return what a command returns; print one of our errors in one line instead of raising it."""
    try:
        return command()
    except HarnessError as error:
        print(f"{program}: {error}", file=sys.stderr)
        codes = (code for kind, code in _CODES.items() if isinstance(error, kind))
        return next(codes, EXIT_FAILED)
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


class Parser(argparse.ArgumentParser):
    """Report a usage error in one line, with the exit code of all usage errors."""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help on stdout; raise `UsageProblem` where that is closed or full."""
        printed(self.format_help().splitlines())

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where the options are listed, and leave."""
        self.exit(EXIT_USAGE, f"{self.prog}: {message} ({self.prog} --help lists what it takes)\n")


def parser(command: str | None = None) -> Parser:
    """Return the command line, with one command alone."""
    top = Parser(
        prog="llama-harness",
        usage="%(prog)s [--help] [--version] COMMAND ...",
        description="Test KV-cache reuse of llama-server builds. For the suite with all its "
        "options: pytest $(llama-harness suite) --help",
        epilog=f"{_listed()}\n\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    if command is not None:
        commands = top.add_subparsers(prog="llama-harness", help=argparse.SUPPRESS)
        module = importlib.import_module(f"harness.commands.{COMMANDS[command].module}")
        module.add(commands.add_parser(command))
    return top


def _listed() -> str:
    """Return the commands as lines of the help."""
    width = max(map(len, COMMANDS))
    lines = (f"  {name.ljust(width)}  {entry.help}" for name, entry in COMMANDS.items())
    return "\n".join(["commands:", *lines])


def _run(words: Sequence[str]) -> int:
    command = next((word for word in words if not word.startswith("-")), None)
    if command is not None and command not in COMMANDS:
        raise UsageProblem(f"there is no command {command!r}", hint=_nearest(command))
    top = parser(command)
    try:
        arguments, others = top.parse_known_args(words)
    except SystemExit as left:
        if not left.code:  # the help was printed
            return printed([])
        raise
    if others:  # argparse would speak of the options of llama-harness itself
        of_command = Parser(prog=" ".join(filter(None, [top.prog, command])))
        of_command.error(f"unrecognized arguments: {' '.join(others)}")
    if arguments.version:
        return printed([f"llama-harness {harness.__version__}"])
    if command is None:
        return printed(top.format_help().splitlines()) or EXIT_USAGE
    run: Callable[[argparse.Namespace], int] = arguments.run
    return run(arguments)


def _nearest(word: str) -> str:
    from difflib import get_close_matches  # takes longer to import than all else here

    close = get_close_matches(word, COMMANDS, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"{meant}commands: {', '.join(COMMANDS)}"
