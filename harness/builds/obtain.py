"""Obtains builds by ref: puts the ladder together for one of them."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from harness.builds.base import Flavour
from harness.builds.cmake import Workshop
from harness.builds.command import Runner
from harness.builds.ladder import Ladder, Outcome, Ready
from harness.builds.origin import Origin
from harness.builds.pip import Pip
from harness.builds.ref import MasterRef, PullRef, Ref, parse
from harness.builds.release import ReleaseRung
from harness.builds.sdist import SdistRung
from harness.builds.source import SourceRung
from harness.builds.steps import Steps
from harness.builds.store import Facts, Store, held, limit_bytes, unwritable
from harness.builds.upstream import Upstream
from harness.builds.wheel import WheelRung
from harness.server.guard import Guard

_LOGS_STAY_SECONDS = 7 * 86_400.0


def obtain(
    text: str,
    flavour: Flavour = Flavour.CPU,
    *,
    store: Store | None = None,
    environ: Mapping[str, str] = os.environ,
    out: TextIO | None = None,
) -> Outcome:
    """The build that a text names, from the store or from wherever it can be had.

    Steps are told on `out`, stderr by default. The process keeps it from being evicted. Raises
    `UsageProblem` for a text that names none, or several.
    """
    ref = parse(text)
    store = store or Store()
    try:
        with ladder(ref, flavour, store, environ) as found:
            return found.obtain(ref, flavour, Steps(str(ref), out or sys.stderr))
    except (OSError, NotImplementedError) as error:
        raise unwritable(store.root, error) from None


def origin(found: Ready, flavour: Flavour, said_by: str) -> Origin:
    """A build as one that `examine` takes, with what is known of it beside what it says."""
    facts = found.entry.facts if found.entry else held(found.path)
    return Origin(
        path=found.path,
        said_by=f"{said_by} {found.ref}",
        number=facts.number if facts else None,
        ref=_lasting(found.ref, found.entry.facts) if found.entry else None,
        device=flavour.value if found.entry else None,
    )


def _lasting(ref: Ref, facts: Facts) -> str:
    """A ref that means this build tomorrow, too."""
    if isinstance(ref, MasterRef) and facts.commit:
        return facts.commit
    if isinstance(ref, PullRef) and facts.commit:
        return str(PullRef(ref.number, facts.commit))
    return str(ref)


@contextmanager
def ladder(
    ref: Ref, flavour: Flavour, store: Store, environ: Mapping[str, str]
) -> Iterator[Ladder]:
    """The usual rungs. Whatever they have started is ended with the block."""
    limit = limit_bytes(environ)
    with Guard() as guard:
        log = _log(store.root / "logs", f"{ref}-{flavour}")
        runner = Runner(guard=guard, log=log, environ=environ)
        pip, workshop = Pip(store, runner), Workshop(store, runner)
        upstream = Upstream(store, runner, environ)
        yield Ladder(
            store=store,
            rungs=(
                WheelRung(pip),
                ReleaseRung(downloads=store.root / "downloads", environ=environ),
                SourceRung(upstream, workshop),
                SdistRung(pip, workshop),
            ),
            upstream=upstream,
            limit=limit,
            session=guard.session,
        )


def _log(directory: Path, name: str) -> Path:
    """A log of this process; those of long ago are removed."""
    if directory.is_dir():
        for old in directory.iterdir():
            with suppress(FileNotFoundError):  # others do the same
                if time.time() - old.stat().st_mtime > _LOGS_STAY_SECONDS:
                    old.unlink()
    slug = re.sub(r"[^\w.+-]+", "-", name)
    return directory / f"{slug}-{os.getpid()}.log"
