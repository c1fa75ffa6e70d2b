"""Addresses as they may be shown."""

from __future__ import annotations

import re

_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")


def without_credentials(text: str) -> str:
    """A text whose addresses do not say who asks there, and by what password."""
    return _CREDENTIALS.sub("", text)
