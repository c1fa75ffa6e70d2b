"""Regression harness for KV-cache reuse in llama.cpp's llama-server."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("llama-cache-harness")
except PackageNotFoundError:  # a clone on sys.path that was never installed
    __version__ = "0+unknown"
