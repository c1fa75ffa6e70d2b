"""Regression harness for KV-cache reuse in llama.cpp's llama-server."""

__version__: str


def __getattr__(name: str) -> str:
    """Look the version up when it is asked for: `importlib.metadata` is slow to import."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("llama-cache-harness")
    except PackageNotFoundError:  # a clone on sys.path that was never installed
        return "0+unknown"
