"""What commands print on stdout, and the exit codes of those that do not end well."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from harness.errors import UsageProblem

EXIT_FAILED, EXIT_NOT_OBTAINED, EXIT_USAGE, EXIT_NO_VERDICT = 1, 3, 4, 5
EXIT_INTERRUPTED, EXIT_PIPE = 130, 141


def printed(lines: Iterable[str]) -> int:
    """Prints as many as the reader wants; the exit code."""
    try:
        for line in lines:
            print(line)
        print(end="", flush=True)
    except OSError as error:
        with Path(os.devnull).open("w") as nowhere:  # else Python tries once more on its way out
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # whoever reads has seen enough
            return EXIT_PIPE
        raise UsageProblem(f"the output cannot be written: {error.strerror}") from None
    return 0
