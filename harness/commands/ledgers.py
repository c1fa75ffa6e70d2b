"""Ledgers as arguments of commands: which argument is one, and whether it can be reported on."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.deployment import in_keys
from harness.errors import NoVerdict, UsageProblem
from harness.ledger import Run, read
from harness.models.published import PUBLISHED
from harness.models.synthetic.store import DEFAULT, chosen
from harness.server.device import AUTO
from harness.session import GENERATED

_FIRST_LINE = 1_000_000
"""Bytes that are read to see whether a file is a ledger."""
_SUFFIXES = (".jsonl", ".json", ".ndjson")
_ENDED = (0, 1, 5)
"""Exit codes of a run that came to its end."""
_EXPRESSIONS = ("-k", "-m")
_CLUSTER = re.compile(r"-[lqsvx]*([km])?")
"""Short options of pytest in one word; the last of them may be an expression's."""
_FEWER = (
    *("--exitfirst", "--maxfail", "--lf", "--last-failed", "--sw", "--stepwise", "--nf"),
    *("--deselect", "--ignore", "--co", "--llama-kv-unified=on", "--llama-kv-unified=off"),
)
"""Options of pytest with which a run leaves tests out, beside expressions."""


def ledger_path(argument: str) -> Path | None:
    """Return the path of an argument that is a ledger, a file whose first line is a `run` row.

    Returns None for every other argument. Raises `UsageProblem` for a file that is named like a
    ledger and is none.
    """
    path = Path(os.path.expanduser(argument))  # noqa: PTH111  # raises nothing
    try:
        if not path.is_file():
            if path.suffix in _SUFFIXES:
                there = "is no file" if path.exists() else "does not exist"
                raise UsageProblem(
                    f"{argument} {there}", hint="pytest --llama-report=PATH writes a ledger"
                )
            return None
        with path.open("rb") as file:
            line = file.readline(_FIRST_LINE)
    except OSError as error:
        if path.suffix in _SUFFIXES:
            raise UsageProblem(
                f"{argument} cannot be read: {error.strerror}", hint="look at its permissions"
            ) from None
        return None
    except ValueError:  # a NUL in the name
        return None
    if line.startswith(b"{") and _is_run(line):
        return path
    if path.suffix in _SUFFIXES:
        raise UsageProblem(
            f"{argument} is not a ledger", hint="pytest --llama-report=PATH writes one"
        )
    return None


def _is_run(line: bytes) -> bool:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and row.get("row") == "run"


def finished(path: Path) -> Run:
    """Read a ledger of one build whose run came to its end.

    Raises `UsageProblem` for another, `NoVerdict` where tests were lost.
    """
    run = read(path)
    builds = run.facts.get("builds")
    needed = ("models", "server_args", "device")
    if not isinstance(builds, list) or not builds or any(key not in run.facts for key in needed):
        raise UsageProblem(
            f"{path} is damaged: its first row lacks what a run says", hint="run the suite again"
        )
    if len(builds) > 1:
        ids = ", ".join(str(build.get("id")) for build in builds)
        raise UsageProblem(
            f"{path} holds {len(builds)} builds ({ids})", hint="write a ledger for each"
        )
    if run.exit_code not in _ENDED:
        raise UsageProblem(
            f"{path} is not whole: pytest ended with exit code {run.exit_code}",
            hint="run the suite again",
        )
    if run.lost:
        raise NoVerdict(f"{path}: {len(run.lost)} tests came to no verdict, as {run.lost[0]}")
    return run


def refuse_options(options: Mapping[str, object], ledgers: Sequence[Path]) -> None:
    """Raise `UsageProblem` for options of a run, where ledgers are given instead of builds."""
    if given := [option for option, value in options.items() if value is not None]:
        names = " and ".join(dict.fromkeys(map(str, ledgers)))
        raise UsageProblem(
            f"{', '.join(given)} can only be given with builds, and {names} "
            f"{'is a ledger' if len(ledgers) == 1 else 'are ledgers'}",
            hint="leave it out, or name the build to run the suite on it",
        )


def refuse_twice(ledgers: Sequence[Path]) -> None:
    """Raise `UsageProblem` where one ledger is to be compared with itself."""
    if len(ledgers) > 1 and ledgers[0].samefile(ledgers[1]):
        raise UsageProblem(
            f"{ledgers[0]} was given twice: nothing can differ", hint="name two ledgers"
        )


def check_agrees(run: Run, path: Path, fields: Mapping[str, Any], config: Path) -> None:
    """Raise `UsageProblem` where a ledger was written with other flags or models than a file has.

    A file that has nothing but `accept` agrees with every ledger.
    """
    if not fields:
        return
    differing = []
    args, ran = list(fields.get("args", ())), list(run.facts["server_args"])
    if args != ran:
        differing.append(("args", shlex.join(args) or "none", shlex.join(ran) or "none"))
    wanted, models = _models(fields, config), [model["name"] for model in run.facts["models"]]
    if wanted != models:
        differing.append(("the models", ", ".join(wanted), ", ".join(models)))
    device = fields.get("device", AUTO)
    if "device" in fields and device != run.facts["device"]:
        differing.append(("device", device, run.facts["device"]))
    for what, said, found in differing:
        raise UsageProblem(
            f"{config} and {path} differ in {what}: {said} against {found}",
            hint="give the file that the run was made with, or name the build to run it again",
        )


def _models(fields: Mapping[str, Any], config: Path) -> list[str]:
    """Return the names of the models that the fields of a config file mean."""
    name = fields.get("model", GENERATED)
    if name == GENERATED:
        try:
            return list(chosen(fields.get("memory", DEFAULT)))
        except UsageProblem as problem:
            message = f"{config}: {in_keys(problem.message)}"
            raise UsageProblem(message, hint=in_keys(problem.hint)) from None
    return [name if name in PUBLISHED else Path(name).name]


def selection_of(run: Run) -> tuple[str, ...]:
    """Return what the command line of a run says that leaves scenarios out, each in its words."""
    words = [str(word) for word in run.facts.get("argv", ())][1:]
    found, before = [], ""
    for word in words:
        cluster = _CLUSTER.fullmatch(word)
        if before in _EXPRESSIONS:
            found.append(f"{before} {word!r}")
        elif cluster and cluster[1]:
            word = f"-{cluster[1]}"
        elif cluster and "x" in word:
            found.append("-x")
        elif word[:2] in _EXPRESSIONS and word[2:]:
            found.append(f"{word[:2]} {word[2:]!r}")
        elif word.startswith(_FEWER):
            found.append(word)
        elif not word.startswith("-") and ("::" in word or word.endswith(".py")):
            found.append(f"naming {word.rpartition('/')[2]}")
        before = "" if before in _EXPRESSIONS else word
    return tuple(found)


def worded(run: Run) -> Run:
    """Return the run with the reasons in terms of the config file, not of pytest's options."""
    rows = (replace(row, reason=row.reason and in_keys(row.reason)) for row in run.verdicts)
    return replace(run, verdicts=tuple(rows))


def ref_of(run: Run) -> str:
    """Return the ref with which pytest was told of the build, or the path of it."""
    build = run.facts["builds"][0]
    option, _, ref = str(build.get("said_by", "")).partition(" ")
    return ref if option == "--llama-ref" and ref else str(build["path"])


def check_writable(path: Path, *, directory: bool = False) -> None:
    """Raise `UsageProblem` where a ledger cannot be written, before a build is run for minutes."""
    try:
        if directory and path.exists() and not path.is_dir():
            raise UsageProblem(f"--report {path} is no directory", hint="compare keeps two ledgers")
        if directory:
            path.mkdir(parents=True, exist_ok=True)
        elif path.is_dir():
            raise UsageProblem(f"--report {path} is a directory", hint="name a file")
        where = path if directory else path.absolute().parent
        if not where.is_dir():
            raise UsageProblem(f"--report {path}: {where} is no directory", hint="make it first")
        if not os.access(where, os.W_OK):
            raise UsageProblem(
                f"--report {path}: {where} cannot be written to", hint="name another"
            )
    except OSError as error:
        raise UsageProblem(
            f"--report {path} cannot be written: {error.strerror}", hint="name another place"
        ) from None
