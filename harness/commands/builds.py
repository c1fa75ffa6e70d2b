"""`llama-harness builds`: the builds that are kept."""

from __future__ import annotations

import argparse
import os
import time

from harness.builds.store import GIB, LIMIT_VARIABLE, Store, in_bytes, limit_bytes, unwritable
from harness.commands.options import add_format, add_verbs
from harness.commands.output import printed


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Lists the builds that `llama-harness get` and the others kept, or removes some."
    )
    verbs = add_verbs(parser)
    listing = verbs.add_parser(
        "list",
        help="print what is kept, the one used last first",
        description="Prints the builds that are kept, the one used last first.",
    )
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


def _list(arguments: argparse.Namespace) -> int:
    from harness.commands.running import shown
    from harness.report.builds import facts, parts

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
