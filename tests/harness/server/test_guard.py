"""The guard alone: whom it kills, when, and whom it leaves alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest

from harness.errors import HarnessError
from harness.server.environment import SESSION_MARKER
from harness.server.guard import Guard
from tests.harness.server.processes import Identity, until, wait_until_gone

StartSleep = Callable[..., subprocess.Popen[bytes]]
"""Starts a process that sleeps, in a process group of its own; `session` marks it."""


@pytest.fixture
def start_sleep() -> Iterator[StartSleep]:
    started: list[subprocess.Popen[bytes]] = []

    def start(session: str | None = None) -> subprocess.Popen[bytes]:
        marker = {} if session is None else {SESSION_MARKER: session}
        sleep = subprocess.Popen(
            ["sleep", "300"], start_new_session=True, env={"PATH": os.environ["PATH"]} | marker
        )
        started.append(sleep)
        if session is not None:
            until(lambda: has_marker(sleep), "it shows its marker")
        return sleep

    yield start
    for sleep in started:
        sleep.kill()
        sleep.wait()


@pytest.fixture
def start_guard() -> Iterator[Callable[..., Guard]]:
    started: list[Guard] = []

    def start(*watched: int) -> Guard:
        started.append(Guard(also_watch=watched))
        return started[-1]

    yield start
    for guard in started:
        guard.close()


def has_marker(process: subprocess.Popen[bytes]) -> bool:
    """An exec that is under way shows no environment yet."""
    return SESSION_MARKER in psutil.Process(process.pid).environ()


def is_killed(process: subprocess.Popen[bytes]) -> bool:
    return process.wait(10) == -signal.SIGKILL


def end_of(guard: Guard) -> None:
    wait_until_gone([Identity.of(guard.pid)])


def test_registered_groups_are_killed_at_the_end(start_sleep: StartSleep) -> None:
    one, other = start_sleep(), start_sleep()
    with Guard() as guard:
        guard.add(one.pid)
        guard.add(other.pid)
    assert is_killed(one)
    assert is_killed(other)


def test_the_whole_group_is_killed() -> None:
    shell = subprocess.Popen(
        ["sh", "-c", "sleep 300 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert shell.stdout is not None
    with shell, Guard() as guard:
        guard.add(shell.pid)
        child = Identity.of(int(shell.stdout.readline()))
        guard.close()
        wait_until_gone([child])


def test_a_discarded_group_is_not_killed(start_sleep: StartSleep) -> None:
    kept, killed = start_sleep(), start_sleep()
    with Guard() as guard:
        guard.add(kept.pid)
        guard.add(killed.pid)
        guard.discard(kept.pid)
    assert is_killed(killed)
    assert kept.poll() is None


def test_a_group_that_has_ended_does_not_keep_others_alive(start_sleep: StartSleep) -> None:
    ended, living = start_sleep(), start_sleep()
    with Guard() as guard:
        guard.add(ended.pid)
        guard.add(living.pid)
        ended.kill()
        ended.wait()
    assert is_killed(living)


def test_what_carries_the_marker_is_killed_without_being_registered(
    start_sleep: StartSleep,
) -> None:
    with Guard() as guard:
        stray = start_sleep(guard.session)
    assert is_killed(stray)


def test_nobody_else_is_touched(start_sleep: StartSleep) -> None:
    """Neither a process without the marker, nor one of another session running beside this one."""
    with Guard() as other:
        unmarked, of_other = start_sleep(), start_sleep(other.session)
        with Guard() as guard:
            stray = start_sleep(guard.session)
        assert is_killed(stray)
        assert unmarked.poll() is None
        assert of_other.poll() is None


def test_the_end_of_a_watched_process_ends_all(
    start_sleep: StartSleep, start_guard: Callable[..., Guard]
) -> None:
    watched, registered = start_sleep(), start_sleep()
    guard = start_guard(watched.pid)
    guard.add(registered.pid)
    marked = start_sleep(guard.session)
    watched.kill()  # not waited for: a zombie has ended, too
    assert is_killed(registered)
    assert is_killed(marked)
    end_of(guard)


_MARKED_LATE = """
echo ready
while kill -0 "$1" 2>/dev/null; do sleep 0.01; done
sleep 0.1
exec env "$2" sleep 300
"""


def test_what_is_just_being_started_is_killed(
    start_sleep: StartSleep, start_guard: Callable[..., Guard]
) -> None:
    """Between fork and exec a server still shows the environment of the harness."""
    watched = start_sleep()
    guard = start_guard(watched.pid)
    marker = f"{SESSION_MARKER}={guard.session}"
    late = subprocess.Popen(
        ["sh", "-c", _MARKED_LATE, "sh", str(watched.pid), marker],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert late.stdout is not None
    with late:
        try:
            assert late.stdout.readline() == b"ready\n"
            watched.kill()
            watched.wait()
            assert is_killed(late)
        finally:
            late.kill()


def test_a_watched_process_that_is_gone_already(
    start_sleep: StartSleep, start_guard: Callable[..., Guard]
) -> None:
    gone, server = start_sleep(), start_sleep()
    gone.kill()
    gone.wait()
    guard = start_guard(gone.pid)
    end_of(guard)
    with pytest.raises(HarnessError):
        guard.add(server.pid)
    assert server.poll() is None


def test_a_watched_process_that_lives_changes_nothing(start_sleep: StartSleep) -> None:
    watched, registered = start_sleep(), start_sleep()
    with Guard(also_watch=[watched.pid]) as guard:
        guard.add(registered.pid)
        assert registered.poll() is None
    assert is_killed(registered)
    assert watched.poll() is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_do_not_end_it(start_sleep: StartSleep, number: signal.Signals) -> None:
    with Guard() as guard:
        before, after = start_sleep(), start_sleep()
        guard.add(before.pid)
        os.kill(guard.pid, number)
        guard.add(after.pid)
        assert before.poll() is None
    assert is_killed(before)
    assert is_killed(after)


def test_it_is_beyond_a_signal_to_our_own_group() -> None:
    with Guard() as guard:
        assert os.getpgid(guard.pid) != os.getpgid(0)
        assert os.getsid(guard.pid) != os.getsid(0)


def test_without_its_guard_nothing_is_started(
    start_sleep: StartSleep, start_guard: Callable[..., Guard]
) -> None:
    guard = start_guard()
    os.kill(guard.pid, signal.SIGKILL)
    end_of(guard)
    server = start_sleep()
    with pytest.raises(HarnessError, match="guard") as caught:
        guard.add(server.pid)
    assert caught.value.hint


def test_closing_twice_is_closing_once() -> None:
    guard = Guard()
    guard.close()
    guard.close()


_FORKED = """
import os, signal, sys
from harness.server.guard import Guard
guard = Guard()
guard.add(int(sys.argv[1]))
if os.fork():
    print("ready", flush=True)
signal.pause()
"""


def test_a_forked_child_does_not_hold_the_guard_back(start_sleep: StartSleep) -> None:
    """It inherits the pipe whose end is the sign: multiprocessing in a test forks like that."""
    server = start_sleep()
    harness = subprocess.Popen(
        [sys.executable, "-c", _FORKED, str(server.pid)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert harness.stdout is not None
    with harness:
        try:
            assert harness.stdout.readline() == b"ready\n"
            harness.kill()
            assert is_killed(server)
        finally:
            os.killpg(harness.pid, signal.SIGKILL)  # the child of the fork
