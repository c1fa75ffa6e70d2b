"""What commands print on stdout, and the exit codes of those that do not end well."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from harness.errors import EXIT_NOT_OBTAINED as EXIT_NOT_OBTAINED
from harness.errors import UsageProblem

EXIT_FAILED, EXIT_USAGE, EXIT_NO_VERDICT = 1, 4, 5
EXIT_INTERRUPTED, EXIT_PIPE = 130, 141
_PIPED = 100
"""Columns where stdout is no terminal and `$COLUMNS` says nothing."""
_NARROWEST = 40


def printed(lines: Iterable[str]) -> int:
    """Print as many lines as the reader wants and return the exit code.

    Raises `UsageProblem` where stdout is closed or cannot be written.
    """
    if sys.stdout is None:
        raise UsageProblem("the output cannot be written: stdout is closed", hint="redirect it")
    try:
        for line in lines:
            print(line)
        print(end="", flush=True)
    except OSError as error:
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123  # else Python tries once more on its way out
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # whoever reads has seen enough
            return EXIT_PIPE
        raise UsageProblem(
            f"the output cannot be written: {error.strerror}", hint="redirect it elsewhere"
        ) from None
    return 0


def width() -> int:
    """Return the columns to print in: those of `$COLUMNS`, the terminal, or 100 for a pipe."""
    from shutil import get_terminal_size  # takes longer to import than all else here

    return max(get_terminal_size((_PIPED, 24)).columns, _NARROWEST)
