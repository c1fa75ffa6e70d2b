"""The llama-server that a reference to a build means."""

from __future__ import annotations

import os
from pathlib import Path

from harness.errors import UsageProblem


def obtained(ref: str) -> Path:
    """The binary, with an absolute path. Raises `UsageProblem` for what is no file."""
    path = Path(os.path.expanduser(ref)).absolute()  # noqa: PTH111  # raises nothing
    if not path.is_file():
        raise UsageProblem(f"{ref}: there is no such binary", hint="name a llama-server")
    return path
