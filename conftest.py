"""Registers the harness plugin for a clone that was not installed."""

import importlib.util
import sys

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
    # An exception of pytest's would be shown with a traceback.
    needs = f"llama-cache-harness needs {', '.join(missing)}"
    print(f"ERROR: {needs} for {sys.executable}: pip install -e '.[prebuilt]'", file=sys.stderr)
    sys.exit(pytest.ExitCode.USAGE_ERROR)

pytest_plugins = ["harness.plugin", "pytester"]


def pytest_configure(config: pytest.Config) -> None:
    """Run the suite where pytest is called in `tests` without arguments, as it is at the root."""
    here = config.invocation_params.dir
    nothing_named = config.args_source is pytest.Config.ArgsSource.INVOCATION_DIR
    if nothing_named and here == config.rootpath / "tests":
        config.args[:] = [str(here / "cache")]
