"""Registers the harness plugin for a clone that was not installed."""

pytest_plugins = ["harness.plugin"]
