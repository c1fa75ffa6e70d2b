"""Puts the suite into the wheel, with the configuration of pytest that it has in a clone."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SUITE = ("pyproject.toml", "tests/__init__.py", "tests/cache")


class SuiteInWheel(BuildHookInterface[Any]):
    """An editable installation has the suite in its clone, and must not have it twice."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Says which files go where."""
        if version == "standard":
            build_data["force_include"].update({name: f"harness/_suite/{name}" for name in _SUITE})
