"""The errors a person can act on: one line that says what, and a hint that says what to do."""

from __future__ import annotations

EXIT_NOT_OBTAINED = 3
"""Of pytest and of all commands, where a build could not be had or does not run here."""


class HarnessError(Exception):
    """Base of every expected failure of the harness; never a verdict on a server.

    `detail` is what others said (a server's words, the end of its log): it may be long and may
    quote a prompt, so it is shown with a failing test and nowhere else.
    """

    def __init__(self, message: str, *, hint: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.detail = detail

    def __str__(self) -> str:
        line = f"{self.message} ({self.hint})" if self.hint else self.message
        return f"{line}\n{self.detail}" if self.detail else line


class UsageProblem(HarnessError):
    """What was asked for cannot be done: a bad option, binary, model or path (exit code 4)."""


class NotObtained(HarnessError):
    """A build that was named could not be had (exit code 3)."""


class DoesNotRun(NotObtained):
    """A build that ends with an instruction this CPU does not have: never a verdict on it."""


class NoVerdict(HarnessError):
    """The suite did not come to its end, so that nothing was found out (exit code 5)."""


class NotTestable(HarnessError):
    """What a scenario needs is not given: the user's arguments, model or files say otherwise."""


class OtherServerNeeded(NotTestable):
    """The server that was attached to is none for this scenario; `command` starts one that is."""

    def __init__(self, message: str, *, command: tuple[str, ...]) -> None:
        super().__init__(message)
        self.command = command


class Selectable(NotTestable):
    """A scenario fits the server that was attached to, and several were selected: none was run."""

    REASON = "the attached server fits: select one scenario with -k"

    def __init__(self) -> None:
        super().__init__(self.REASON)


class Unsupported(NotTestable):
    """The build lacks a flag that a scenario needs."""


class ServerError(HarnessError):
    """A llama-server we started did not do its part as a process."""


class ServerEnded(ServerError):
    """The process ended when it should live."""


class DoesNotStart(ServerError):
    """A server does not start with the flags and the model it was given; said once in a run."""


class ReferenceTrouble(HarnessError):
    """What answers are measured against could not be had: no verdict on reuse."""


class RequestError(HarnessError):
    """A request was not answered as the API promises."""


class Refused(RequestError):
    """The server answered with an HTTP error; `detail` has its own words."""

    def __init__(self, status: int, message: str, *, request: str) -> None:
        super().__init__(f"{request} was refused with HTTP {status}", detail=message)
        self.status = status


class TimedOut(RequestError):
    """The server did not answer within the time the request was given."""


class Disconnected(RequestError):
    """The connection failed or broke: usually the server has died."""


class Malformed(RequestError):
    """The answer is not what the API describes (no JSON, a missing field)."""
