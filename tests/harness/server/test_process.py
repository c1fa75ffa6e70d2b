"""One llama-server as a process: started, known to be ours, watched, and gone at the end."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from harness.client import Client, Options
from harness.errors import Disconnected, HarnessError, RequestError, ServerError, TimedOut
from harness.models.synthetic.store import generated
from harness.prompts import prose
from harness.server import process as process_module
from harness.server.config import LoadedAdapter, ServerConfig
from harness.server.guard import Guard
from harness.server.launcher import parse_launcher
from harness.server.process import LlamaServer, Program, ServerExited, ServerNotReady
from tests.harness.server.conftest import MakeServer, WriteProgram, WriteScript
from tests.harness.server.processes import Identity, descendants, until, wait_until_gone


def family(server: LlamaServer) -> list[Identity]:
    return [Identity.of(server.pid), *descendants(server.pid)]


# --- a server that works --------------------------------------------------------------------------


def test_start_and_stop(make_server: MakeServer) -> None:
    server = make_server()
    with server as entered:
        assert entered is server
        process = Identity.of(server.pid)
        server.client.health()
        server.check_alive()
        assert server.client.props().model_alias == server.config.alias
    wait_until_gone([process])


def test_it_listens_on_loopback_only_and_in_a_session_of_its_own(make_server: MakeServer) -> None:
    with make_server() as server:
        process = psutil.Process(server.pid)
        listening = [c for c in process.net_connections() if c.status == psutil.CONN_LISTEN]
        assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}
        assert server.client.url == f"http://127.0.0.1:{listening[0].laddr.port}"
        assert os.getsid(server.pid) == server.pid


def test_two_at_once_have_names_and_ports_of_their_own(make_server: MakeServer) -> None:
    with make_server() as one, make_server() as other:
        assert one.client.url != other.client.url
        assert one.config.alias != other.config.alias


def test_the_configuration_is_what_the_server_says_of_itself(
    make_server: MakeServer, config: ServerConfig
) -> None:
    adapter = generated().adapters["A"].path
    wanted = replace(config, parallel=3, adapters=(LoadedAdapter(adapter, 0.5),))
    with make_server(wanted) as server:
        assert len(server.client.slots()) == 3
        assert [(a.path, a.scale) for a in server.client.lora_adapters()] == [(str(adapter), 0.5)]
        assert server.client.props().model_path == str(config.model)


def test_the_command_line_can_be_copied(make_server: MakeServer) -> None:
    with make_server() as server:
        line = next(line for line in server.describe().splitlines() if "command: " in line)
        words = shlex.split(line.partition("command: ")[2])
        assert words == list(server.command) == psutil.Process(server.pid).cmdline()


def test_its_log_is_read_by_request(make_server: MakeServer) -> None:
    with make_server() as server:
        slices = []
        for text in ("one", "another"):
            start = server.log.position()
            server.client.completion(text)
            slices.append(server.log.request_slice(start))
        first, second = slices
        assert first.end <= second.start
        assert first.text().count("stop processing") == 1
        assert second.text().count("stop processing") == 1


def test_stopping_twice_is_stopping_once(make_server: MakeServer) -> None:
    server = make_server()
    server.stop()  # it never began
    server.start()
    server.stop()
    server.stop()


def test_starting_again_is_a_server_without_memory(make_server: MakeServer) -> None:
    server, prompt = make_server(), prose("P", 60).text
    for _ in range(2):
        with server:
            assert server.client.completion(prompt).timings.cache_n == 0


def test_an_error_in_the_block_ends_the_server(make_server: MakeServer) -> None:
    with pytest.raises(KeyboardInterrupt), make_server() as server:
        process = Identity.of(server.pid)
        raise KeyboardInterrupt
    wait_until_gone([process])


def test_a_server_that_does_not_end_when_asked_is_killed(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "_STOP_SECONDS", 0.2)
    server = make_server()
    server.start()
    process = Identity.of(server.pid)
    os.kill(server.pid, signal.SIGSTOP)  # it hears no TERM any more
    server.stop()
    wait_until_gone([process])


def test_no_server_without_a_guard(make_server: MakeServer) -> None:
    guard = Guard()
    os.kill(guard.pid, signal.SIGKILL)
    wait_until_gone([Identity.of(guard.pid)])
    server = make_server(guard=guard)
    try:
        with pytest.raises(HarnessError, match="guard"):
            server.start()
        assert not marked(guard)
    finally:
        server.stop()  # nothing else would, if it did start
        guard.close()


def marked(guard: Guard) -> list[int]:
    """Processes that belong to the guard's session."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except psutil.Error:
            continue
        if guard.session in environment.values():
            found.append(process.pid)
    return found


# --- a server that does not get ready -------------------------------------------------------------


_STARTS = 10
"""llama-server logs from another thread, and may end before its last lines are written."""


def test_a_model_that_is_cut_off(
    make_server: MakeServer, config: ServerConfig, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(config.model.read_bytes()[:20_000])
    server = make_server(replace(config, model=cut))
    for _ in range(_STARTS):
        with pytest.raises(ServerExited) as caught:
            server.start()
        assert caught.value.returncode == 1
        text = str(caught.value)
        assert "ended with exit code 1" in text
        assert shlex.join(server.command) in text
        assert str(server.log.path) in text
        if "error loading model" in text.splitlines()[0]:
            return
    raise AssertionError(f"the server's own error was never told: {text}")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo the last words; exit 3", "ended with exit code 3"),
        ("echo the last words; kill -KILL $$", "was killed by SIGKILL"),
        ("echo the last words; kill -ABRT $$", "was killed by SIGABRT"),
        ("echo the last words", "ended with exit code 0"),
    ],
    ids=["exit", "killed", "aborted", "done"],
)
def test_a_program_that_ends_at_once(
    body: str, said: str, make_server: MakeServer, program: Program, write_script: WriteScript
) -> None:
    server = make_server(program=replace(program, binary=write_script(body), launcher=()))
    with pytest.raises(ServerExited) as caught:
        server.start()
    assert said in caught.value.message
    assert "the last words" in caught.value.detail


@pytest.mark.parametrize("trap", ["true", "trap '' TERM"], ids=["willing", "stubborn"])
def test_a_program_that_never_listens(
    trap: str,
    make_server: MakeServer,
    program: Program,
    write_script: WriteScript,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_module, "_STOP_SECONDS", 0.2)
    pids = tmp_path / "pids"
    script = write_script(f"{trap}; echo waiting; sleep 300 & echo $! $$ > '{pids}'; wait; wait")
    server = make_server(program=replace(program, binary=script, launcher=()), ready_seconds=0.5)
    with pytest.raises(ServerNotReady, match="does not listen") as caught:
        server.start()
    assert "waiting" in caught.value.detail
    wait_until_gone(Identity.of(int(pid)) for pid in pids.read_text().split())


def test_what_a_program_left_in_its_group_when_it_ended(
    make_server: MakeServer, program: Program, write_script: WriteScript, tmp_path: Path
) -> None:
    left = tmp_path / "left"
    script = write_script(f"trap '' TERM; sleep 300 & echo $! > '{left}'; exit 3")
    with pytest.raises(ServerExited):
        make_server(program=replace(program, binary=script, launcher=())).start()
    wait_until_gone([Identity.of(int(left.read_text()))])


SOMEBODY = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

ALIAS = sys.argv[sys.argv.index("--alias") + 1]
PROPS = {
    "model_alias": ALIAS, "model_path": "m", "build_info": "b", "total_slots": 1,
    "chat_template": "",
}
HEALTH, STATUS = {"status": "ok"}, 200

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        answer = HEALTH if self.path == "/health" else PROPS
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(STATUS)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

CHANGE
HTTPServer(("127.0.0.1", 0), Handler).serve_forever()
"""
"""A program that answers as its server would, but for one change."""

StartSomebody = Callable[[str, float], LlamaServer]


@pytest.fixture
def somebody(
    make_server: MakeServer, program: Program, write_program: WriteProgram
) -> StartSomebody:
    def make(change: str, ready_seconds: float) -> LlamaServer:
        path = write_program(SOMEBODY.replace("CHANGE", change))
        other = replace(program, binary=path, launcher=())
        return make_server(program=other, ready_seconds=ready_seconds)

    return make


def test_a_program_that_answers_as_it_should(somebody: StartSomebody) -> None:
    """Control: what follows fails for its one change alone."""
    with somebody("", 60.0) as server:
        process = Identity.of(server.pid)
    wait_until_gone([process])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("PROPS['model_alias'] = 'somebody-else'", "answers as 'somebody-else', not as 'harness-"),
        ("del PROPS['model_alias']", "/props has no field 'model_alias'"),
        ("HEALTH = b'<html>'", "did not answer with JSON"),
        ("HEALTH = {'status': 'dreaming'}", "/health says 'dreaming'"),
        ("STATUS = 401", "GET /health was refused with HTTP 401"),
    ],
    ids=["other_alias", "no_alias", "no_json", "other_health", "refusal"],
)
def test_a_program_that_is_not_our_server(
    change: str, said: str, somebody: StartSomebody, own_guard: Guard
) -> None:
    server = somebody(change, 60.0)
    with pytest.raises(ServerError) as caught:
        server.start()
    assert said in caught.value.message
    assert shlex.join(server.command) in caught.value.detail
    assert not marked(own_guard)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("STATUS, HEALTH = 503, {'error': {'message': 'loading'}}", "still loading its model"),
        ("Handler.do_GET = lambda self: __import__('time').sleep(300)", "did not answer within"),
    ],
    ids=["loading", "silent"],
)
def test_a_server_that_never_gets_ready_says_why(
    change: str, said: str, somebody: StartSomebody, own_guard: Guard
) -> None:
    server = somebody(change, 1.0)
    with pytest.raises(ServerNotReady) as caught:
        server.start()
    assert said in caught.value.message
    assert not marked(own_guard)


def test_a_program_that_is_not_there(
    make_server: MakeServer, program: Program, tmp_path: Path
) -> None:
    server = make_server(program=replace(program, binary=tmp_path / "gone", launcher=()))
    with pytest.raises(ServerError, match="cannot be run"):
        server.start()


def test_a_log_that_cannot_be_written(
    program: Program, config: ServerConfig, own_guard: Guard, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    log_path = tmp_path / "file" / "server.log"
    server = LlamaServer(program, config, guard=own_guard, log_path=log_path)
    with pytest.raises(ServerError, match="cannot be written"):
        server.start()


# --- a server that dies ---------------------------------------------------------------------------


def test_a_broken_connection_is_the_death_of_the_server(make_server: MakeServer) -> None:
    with make_server() as server:
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(Disconnected) as caught:
            until_refused(server.client)
        cause = server.cause(caught.value)
        assert isinstance(cause, ServerExited)
        assert cause.returncode == -signal.SIGKILL
        assert "was killed by SIGKILL" in cause.message
        with pytest.raises(ServerExited):
            server.check_alive()


def until_refused(client: Client) -> None:
    """A killed process may accept one connection more."""
    for _ in range(100):
        client.health(timeout=10)
        time.sleep(0.01)


def test_a_server_that_dies_while_it_answers(make_server: MakeServer) -> None:
    with make_server() as server:
        start = server.log.position()

        def kill_when_it_works() -> None:
            until(lambda: "processing task" in server.log.tail(), "it processes a task")
            os.kill(server.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_when_it_works)
        killer.start()
        with pytest.raises(Disconnected) as caught:
            server.client.completion("on and on", Options(n_predict=50_000))
        killer.join()
        assert isinstance(server.cause(caught.value), ServerExited)
        assert server.log.request_slice(start).text()


@pytest.mark.parametrize("error", [Disconnected("broken"), TimedOut("late")])
def test_a_server_that_lives_is_not_the_cause(
    error: RequestError, make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "DYING_SECONDS", 0.05)
    with make_server() as server:
        assert server.cause(error) is error


# --- launchers ------------------------------------------------------------------------------------


def test_under_a_wrapper_that_becomes_the_server(
    make_server: MakeServer, program: Program, write_script: WriteScript
) -> None:
    wrapper = str(write_script('exec "$@"'))
    with make_server(program=replace(program, launcher=(wrapper,))) as server:
        assert server.command[:2] == (wrapper, str(program.binary))
        assert psutil.Process(server.pid).exe() == str(program.binary.resolve())
        assert server.client.completion("hello").prompt_tokens > 0


@pytest.mark.skipif(shutil.which("taskset") is None, reason="taskset is not installed")
def test_under_taskset(make_server: MakeServer, program: Program) -> None:
    processor = min(os.sched_getaffinity(0))
    launcher = parse_launcher(f"taskset -c {processor}")
    with make_server(program=replace(program, launcher=launcher)) as server:
        assert psutil.Process(server.pid).cpu_affinity() == [processor]


def test_under_a_wrapper_that_waits(
    make_server: MakeServer, program: Program, write_script: WriteScript
) -> None:
    """The server is a child: its port is found, and both end."""
    wrapper = str(write_script('"$@"\nexit $?'))
    with make_server(program=replace(program, launcher=(wrapper,))) as server:
        processes = family(server)
        assert len(processes) == 2
        assert server.client.completion("hello").prompt_tokens > 0
    wait_until_gone(processes)


ELSEWHERE = """
import os, sys
if os.fork():
    PARENT
else:
    os.setsid()
    os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a program in a session of its own, so that no signal to our group reaches it."""


def test_a_server_in_another_session_ends_with_its_launcher(
    make_server: MakeServer, program: Program, write_program: WriteProgram
) -> None:
    wrapper = str(write_program(ELSEWHERE.replace("PARENT", "os.wait()")))
    with make_server(program=replace(program, launcher=(wrapper,))) as server:
        processes = family(server)
        assert {os.getsid(process.pid) for process in processes} == {p.pid for p in processes}
        assert len(processes) == 2
    wait_until_gone(processes)


def test_a_server_left_behind_by_its_launcher_ends_with_the_session(
    make_server: MakeServer, program: Program, write_program: WriteProgram
) -> None:
    """Nobody is its parent any more: only the marker tells whose it is."""
    wrapper = str(write_program(ELSEWHERE.replace("PARENT", "sys.exit(0)")))
    with Guard() as guard:
        server = make_server(program=replace(program, launcher=(wrapper,)), guard=guard)
        with pytest.raises(ServerExited, match="exit code 0"):
            server.start()
        until(lambda: bool(marked(guard)), "the server runs")
        left = [Identity.of(pid) for pid in marked(guard)]
    wait_until_gone(left)


@pytest.fixture
def gdb(program: Program) -> Program:
    """The server under plain `gdb --args`."""
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed")
    done = subprocess.run(
        ["gdb", "-batch", "-ex", "run", "--args", "/bin/true"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "exited normally" not in done.stdout:
        pytest.skip("gdb may not trace here")  # many containers forbid it
    return replace(program, launcher=parse_launcher("gdb --args"))


def test_under_gdb(make_server: MakeServer, gdb: Program) -> None:
    with make_server(program=gdb) as server:
        processes = family(server)
        assert len(processes) > 1
        assert server.client.completion("hello").prompt_tokens > 0
    wait_until_gone(processes)


def test_a_crash_under_gdb_leaves_a_backtrace_in_the_log(
    make_server: MakeServer, gdb: Program
) -> None:
    with make_server(program=gdb) as server:
        (inferior,) = descendants(server.pid)
        os.kill(inferior.pid, signal.SIGSEGV)
        until(lambda: not inferior.lives(), "the server has crashed", 60)
        cause = server.cause(Disconnected("broken"))
        assert isinstance(cause, ServerExited)
        log = server.log.path.read_text(errors="replace")
    assert "received signal SIGSEGV" in log
    assert "Thread 1 (" in log
