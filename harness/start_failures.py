"""Servers that do not start: found out once in a run, by whichever process meets it first."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StartFailures:
    """Remembers which servers do not start, and why, for all processes of a run."""

    directory: Path
    """Shared by the processes."""

    def reason(self, server: Sequence[str]) -> str | None:
        """Return why a server does not start; None where nobody has found that out."""
        try:
            return self._path(server).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def add(self, server: Sequence[str], reason: str) -> bool:
        """Remember why a server does not start. Return whether this process is the first to say it.

        Another process reads the whole reason or none. Where nothing can be written, every process
        is the first.
        """
        try:
            return self._write(server, reason)
        except OSError:
            return True

    def _write(self, server: Sequence[str], reason: str) -> bool:
        descriptor, beside = tempfile.mkstemp(dir=self.directory)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(reason)
            self._path(server).hardlink_to(beside)
        except FileExistsError:
            return False
        finally:
            Path(beside).unlink()
        return True

    def _path(self, server: Sequence[str]) -> Path:
        key = hashlib.sha256(json.dumps([*server]).encode()).hexdigest()
        return self.directory / key
