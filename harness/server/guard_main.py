"""The guard's own program: run by path with `python -I -S`, standard library only.

    guard_main.py SESSION [PID ...]

Reads lines `+PGID` and `-PGID` on stdin, and `.` before an orderly end. When stdin ends (its pytest
is gone, however it went) or one of the watched PIDs is gone, every process group still registered
is killed, and then every process that carries the session's marker in its environment: a debugger's
child sits in a process group of its own, and a server may have been started in the instant before
it was registered.
"""

import os
import select
import signal
import sys
import time

MARKER = "CACHE_HARNESS_SESSION"
STARTING_SECONDS = 0.5
"""Until its exec is done, a server being started shows its parent's environment, or none."""

GIVE_UP_SECONDS = 10.0
"""A process stuck in a driver cannot be killed; pytest waits for us at its end."""


def watch(pids: list[int]) -> dict[int, int]:
    """A pidfd for each pid that still lives: readable when that very process has ended."""
    watched = {}
    for pid in pids:
        try:
            watched[os.pidfd_open(pid)] = pid
        except ProcessLookupError:
            watched[-1] = pid  # gone already
        except (AttributeError, OSError):
            continue  # no pidfd on this system: its parent's end still closes stdin
    return watched


def groups_left(watched: dict[int, int]) -> tuple[set[int], bool]:
    """Process groups registered at the moment the session ended; whether that was in order."""
    groups: set[int] = set()
    pending, orderly = b"", False
    while -1 not in watched:
        ready, _, _ = select.select([0, *watched], [], [])
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                if line == b".":
                    orderly = True
                else:
                    (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
        if any(fd in ready for fd in watched):
            break
    os.close(0)  # from now on nothing can be registered that would be missed
    return groups, orderly


def marked(session: str) -> list[int]:
    """Processes of this session, by the marker in their environment (Linux)."""
    wanted = f"{MARKER}={session}".encode()
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if wanted in file.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                continue  # ended meanwhile, or another user's
    return found


def kill(pid: int, *, group: bool) -> None:
    """SIGKILL to a process, or to a whole group, that may be gone already."""
    try:
        (os.killpg if group else os.kill)(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def main() -> None:
    """Wait for the end of the session, then leave nothing of it behind."""
    session, *pids = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    print("ready", flush=True)
    groups, orderly = groups_left(watch([int(pid) for pid in pids]))
    for leader in groups:
        kill(leader, group=True)
    began = time.monotonic()
    deadline = began + (0 if orderly else STARTING_SECONDS)
    while (strays := marked(session)) or time.monotonic() < deadline:
        if time.monotonic() - began > GIVE_UP_SECONDS:
            break
        for pid in strays:
            kill(pid, group=False)
        select.select([], [], [], 0.01 if strays else 0.05)


if __name__ == "__main__":
    main()
