"""The Hugging Face hub, for whoever may or may not want a file from it."""

from __future__ import annotations

import os
from pathlib import Path

from harness.errors import UsageProblem
from harness.models.hub_file import NO_DOWNLOAD, HubFile
from harness.urls import without_credentials


def fetch(file: HubFile) -> Path:
    """Where the file is in the hub's cache, fetched now unless it is there whole.

    Progress goes to stderr. `HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME`, `HF_HUB_OFFLINE` and proxies are
    honoured; processes that want the same file wait for each other. Raises `UsageProblem` where it
    cannot be had. What the hub sends that is not the file does not stay in the cache.
    """
    try:
        # Here, so that whoever fetches nothing does not load the library.
        from harness.models.download import fetched
    except ValueError as error:  # what the library says of settings it reads at import
        endpoint = os.environ.get("HF_ENDPOINT", "the hub")
        raise UsageProblem(
            without_credentials(f"{file} cannot be fetched from {endpoint}: {error}"),
            hint=NO_DOWNLOAD,
        ) from None
    return fetched(file)
