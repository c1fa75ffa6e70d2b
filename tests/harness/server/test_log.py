"""A server's log file, read by position."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from harness.server import log as log_module
from harness.server.log import LogSlice, ServerLog

END = "slot release: id  0 | task 0 | stop processing: n_tokens = 9\n"


@pytest.fixture
def log(tmp_path: Path) -> ServerLog:
    return ServerLog(tmp_path / "server.log")


def append(log: ServerLog, text: str) -> None:
    with log.path.open("a") as file:
        file.write(text)


def test_position_counts_bytes(log: ServerLog) -> None:
    append(log, "é\n")
    assert log.position() == 3


def test_a_file_that_is_not_there_is_empty(log: ServerLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "_SETTLE_SECONDS", 0.0)
    assert log.position() == 0
    assert log.tail() == ""
    assert log.announced_port() is None
    assert log.request_slice(0).text() == ""


def test_slices_follow_each_other(log: ServerLog) -> None:
    append(log, f"loading\nfirst\n{END}")
    first = log.request_slice(len("loading\n"))
    append(log, f"second\n{END}")
    second = log.request_slice(first.end)
    assert first.text() == f"first\n{END}"
    assert second.text() == f"second\n{END}"


def test_a_slice_waits_for_the_line_that_ends_a_task(
    log: ServerLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_SETTLE_SECONDS", 30.0)
    append(log, "working\n")
    later = threading.Timer(0.05, append, (log, END))
    later.start()
    assert log.request_slice(0).text() == f"working\n{END}"
    later.join()


def test_the_end_of_the_task_before_does_not_end_a_slice(
    log: ServerLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_SETTLE_SECONDS", 30.0)
    append(log, END)
    start = log.position()
    later = threading.Timer(0.05, append, (log, END))
    later.start()
    assert log.request_slice(start).text() == END
    later.join()


def test_a_slice_without_that_line_is_what_there_is(
    log: ServerLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_SETTLE_SECONDS", 0.01)
    append(log, "working\n")
    assert log.request_slice(0).text() == "working\n"


def test_a_slice_of_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"a\xffb")
    assert LogSlice(path, 0, 3).text() == "a\N{REPLACEMENT CHARACTER}b"


def test_a_slice_outlives_its_file(log: ServerLog) -> None:
    append(log, END)
    kept = log.request_slice(0)
    log.path.unlink()
    assert kept.text() == ""


def test_tail_is_the_last_lines(log: ServerLog) -> None:
    append(log, "".join(f"line {i}\n" for i in range(100)))
    assert log.tail(2) == "line 98\nline 99"
    assert len(log.tail().splitlines()) == 40


def test_tail_of_a_huge_file(log: ServerLog) -> None:
    append(log, "x" * 200_000 + "\nthe end\n")
    assert log.tail(1) == "the end"


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("srv  llama_server: listening on http://127.0.0.1:32943\n", 32943),
        ("main: server is listening on http://127.0.0.1:8080 - starting the main loop\n", 8080),
        ("listening on http://127.0.0.1:1\nlistening on http://127.0.0.1:2\n", 1),
        ("main: loading model\n", None),
        ("listening on http://127.0.0.1:329", None),
    ],
    ids=["plain", "more_on_the_line", "twice", "not_yet", "half_a_line"],
)
def test_announced_port(log: ServerLog, text: str, port: int | None) -> None:
    append(log, text)
    assert log.announced_port() == port


def test_a_port_announced_by_the_server_before(log: ServerLog) -> None:
    append(log, "listening on http://127.0.0.1:1\n")
    start = log.position()
    assert log.announced_port(start) is None
    append(log, "listening on http://127.0.0.1:2\n")
    assert log.announced_port(start) == 2
