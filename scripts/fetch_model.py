#!/usr/bin/env python3
"""Fetches a real model and its adapter from the Hugging Face hub, and prints where they are."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

try:
    from harness.cli import Parser, exit_code
    from harness.models.hub import fetch
    from harness.models.hub_file import HubFile
    from harness.models.published import PUBLISHED
except ModuleNotFoundError as missing:
    print(f"fetch_model.py: {missing} (pip install -e . in its clone)", file=sys.stderr)
    sys.exit(4)

_DEFAULT = "stories15m-moe"
_ANY_FILE = ("repo", "revision", "file", "sha256")


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one path a line. 4 where a file cannot be had."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    given = {name: getattr(arguments, name) for name in _ANY_FILE}
    if any(given.values()) and (arguments.names or not all(given.values())):
        parser.error("any other file needs --repo, --revision, --file and --sha256, and no NAME")

    def command() -> int:
        for file in _any(arguments) if given["repo"] else _named(arguments.names or [_DEFAULT]):
            print(fetch(file), flush=True)
        return 0

    return exit_code(parser.prog, command)


def _any(arguments: argparse.Namespace) -> list[HubFile]:
    return [HubFile(arguments.repo, arguments.revision, arguments.file, arguments.sha256.lower())]


def _named(names: Sequence[str]) -> list[HubFile]:
    """Each model, and after it its adapter."""
    files = [file for name in names for file in (PUBLISHED[name].model, PUBLISHED[name].lora)]
    return list(dict.fromkeys(files))


def _name(given: str) -> str:
    if given not in PUBLISHED:
        raise argparse.ArgumentTypeError(f"no {given!r}; there are {', '.join(PUBLISHED)}")
    return given


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="fetch_model.py",
        description="Fetch a model and its adapter into the Hugging Face cache, check their sha256 "
        "and print where they are. HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE and proxies are "
        "honoured.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        type=_name,
        metavar="NAME",
        help=f"{', '.join(PUBLISHED)} (default: {_DEFAULT})",
    )
    parser.add_argument("--repo", help="any other file: its repository, owner/name")
    parser.add_argument("--revision", help="the commit, 40 hex digits")
    parser.add_argument("--file", help="its name in the repository")
    parser.add_argument("--sha256", help="what its bytes must have, 64 hex digits")
    return parser


if __name__ == "__main__":
    sys.exit(main())
