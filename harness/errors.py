"""The errors a person can act on: one line that says what, and a hint that says what to do."""

from __future__ import annotations


class HarnessError(Exception):
    """Base of every expected failure of the harness; never a verdict on a server."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageProblem(HarnessError):
    """What was asked for cannot be done: a bad option, binary, model or path (exit code 4)."""


class ServerError(HarnessError):
    """A llama-server we started did not do its part as a process."""


class RequestError(HarnessError):
    """A request was not answered as the API promises."""


class Refused(RequestError):
    """The server answered with an HTTP error; `status` and its own words are kept."""

    def __init__(self, status: int, message: str, *, request: str) -> None:
        super().__init__(f"{request} was refused: HTTP {status}: {message}")
        self.status = status
        self.server_message = message


class TimedOut(RequestError):
    """The server did not answer within the time the request was given."""


class Disconnected(RequestError):
    """The connection failed or broke: usually the server has died."""


class Malformed(RequestError):
    """The answer is not what the API describes (no JSON, a missing field)."""
