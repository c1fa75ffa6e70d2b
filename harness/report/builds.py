"""The builds that are kept, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from harness.builds.ladder import Ready
from harness.builds.store import Entry, Store
from harness.report.format import Part, Table

SCHEMA = 1
_HEAD = ("build", "commit", "flavours", "from", "MB", "took", "used", "path")
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60


def parts(store: Store, entries: Sequence[Entry], now: float) -> Iterator[Part]:
    """For people."""
    yield Table(_HEAD, [_row(entry, now) for entry in entries])
    size = sum(entry.facts.size for entry in entries) / 1e6
    yield f"{len(entries)} builds, {size:.0f} MB, in {store.root}"


def facts(store: Store, entries: Sequence[Entry]) -> dict[str, Any]:
    """For programs; `schema` changes with the meaning of any field."""
    return {
        "schema": SCHEMA,
        "root": str(store.root),
        "builds": [_facts(entry) for entry in entries],
    }


def ready_facts(found: Ready) -> dict[str, Any]:
    """One build, for programs: no more than its path, where it was named by that."""
    known = _facts(found.entry) if found.entry else {"path": str(found.path)}
    return {"schema": SCHEMA, "ref": str(found.ref), "build": known}


def _facts(entry: Entry) -> dict[str, Any]:
    return {
        "path": str(entry.binary),
        "used": round(entry.used),
        **msgspec.to_builtins(entry.facts),
    }


def _row(entry: Entry, now: float) -> tuple[str, ...]:
    found = entry.facts
    return (
        f"b{found.number}" if found.number else "-",
        (found.commit or "-")[:12],
        "+".join(found.flavours),
        found.rung,
        f"{found.size / 1e6:.0f}",
        f"{found.seconds:.0f} s",
        _ago(now - entry.used),
        str(entry.binary),
    )


def _ago(seconds: float) -> str:
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} ago"
    return "just now"
