"""Asking over HTTP, as every place on the network is; and what to say where nobody answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

import requests

from harness.builds.base import NotHere
from harness.urls import without_credentials

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
"""How long a host may be silent, before its answer and within it."""

_QUERY = re.compile(r"[?#].*", re.DOTALL)


class _Session(requests.Session):
    """Takes proxies and certificates from the environment, and logins of the first host alone.

    By itself the library would look up a host that it is sent on to in .netrc as well.
    """

    def rebuild_auth(
        self, prepared_request: requests.PreparedRequest, response: requests.Response
    ) -> None:
        """Called for a request that follows a redirection."""
        before, after = (
            urlsplit(asked.url or "") for asked in (response.request, prepared_request)
        )
        if (before.scheme, before.netloc) != (after.scheme, after.netloc):
            prepared_request.headers.pop("Authorization", None)


@contextmanager
def answer(url: str, headers: Mapping[str, str] | None = None) -> Iterator[requests.Response]:
    """What a GET is answered with, whatever its status; the body is read as it is used.

    Raises `NotHere` where there is no answer, or where it breaks off within the block.
    """
    with _Session() as session:
        if headers and "Authorization" in headers:
            session.auth = _as_it_is  # or .netrc would win
        try:
            response = session.get(
                url, headers=headers, stream=True, timeout=(CONNECT_SECONDS, READ_SECONDS)
            )
        except (OSError, ValueError) as error:
            # The library's own errors are some of these, and not all that it lets through.
            raise _no_answer(url, error) from None
        with response:
            try:
                yield response
            except requests.RequestException as error:
                raise _no_answer(url, error) from None


def shown(url: str) -> str:
    """An address as others may read it: without who asks, and without signatures."""
    return _QUERY.sub("", without_credentials(url))


def host(url: str) -> str:
    """Who is asked."""
    return shown(url).partition("://")[2].partition("/")[0]


def timed_out(error: Exception) -> bool:
    """Whether the host was silent for too long, rather than gone."""
    root = _root(error)
    return isinstance(error, requests.Timeout) or isinstance(root, TimeoutError)


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _no_answer(url: str, error: Exception) -> NotHere:
    return NotHere(f"{shown(url)} cannot be fetched: {_reason(error)}", trouble=True)


def _reason(error: Exception) -> str:
    """Why, in a few words of the system's or of ours: the library's own quote addresses."""
    if isinstance(error, requests.ConnectTimeout):
        return f"no connection within {CONNECT_SECONDS:g} s"
    if timed_out(error):
        return f"no answer within {READ_SECONDS:g} s"
    root = _root(error)
    if isinstance(root, OSError) and not isinstance(root, requests.RequestException):
        text = str(root.strerror or root).strip() or type(root).__name__
        proxy = "the proxy: " if isinstance(error, requests.exceptions.ProxyError) else ""
        return f"{proxy}{without_credentials(text.splitlines()[0])}"
    if isinstance(error, ValueError):
        return "its address, or a proxy's, or a token makes no sense"
    if isinstance(error, requests.TooManyRedirects):
        return "it is sent on without end"
    return "the connection broke off"


def _root(error: BaseException) -> BaseException:
    while deeper := error.__cause__ or error.__context__:
        error = deeper
    return error
