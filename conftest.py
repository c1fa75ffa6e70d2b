"""Registers the harness plugin for a clone that was not installed."""

import importlib.util

import pytest

# What the plugin imports from outside; without this check a clone run by a pytest that lives
# elsewhere would end in a traceback.
_NEEDED = (
    "filelock",
    "gguf",
    "httpx2",
    "huggingface_hub",
    "msgspec",
    "numpy",
    "platformdirs",
    "prometheus_client",
    "psutil",
    "pytest_timeout",
    "requests",
)

if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
    pytest.exit(
        f"llama-cache-harness needs {', '.join(missing)}: pip install -e '.[prebuilt]'",
        returncode=pytest.ExitCode.USAGE_ERROR,
    )

pytest_plugins = ["harness.plugin", "pytester"]
