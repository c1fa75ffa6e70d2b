"""Nothing in the user's environment decides for a server, or for the client that asks it."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from harness.builds.build import Build
from harness.client import Client
from harness.prompts import prose
from harness.server.config import CPU, ServerConfig, on_cpu
from harness.server.environment import SESSION_MARKER, hermetic_environment
from harness.server.guard import Guard
from harness.server.process import LlamaServer
from tests.harness.server.conftest import MakeServer

DEAD = "{dead}"
"""Stands for the port of a proxy that refuses every connection."""

HOSTILE = {
    "LLAMA_ARG_CACHE_RAM": "0",
    "LLAMA_ARG_NO_CACHE_PROMPT": "1",
    "LLAMA_ARG_CACHE_PROMPT": "0",
    "LLAMA_ARG_N_PARALLEL": "3",
    "LLAMA_ARG_PORT": DEAD,
    "LLAMA_ARG_HOST": "127.0.0.2",
    "LLAMA_ARG_ALIAS": "somebody-else",
    "LLAMA_ARG_CTX_SIZE": "512",
    "LLAMA_ARG_API_PREFIX": "/elsewhere",
    "LLAMA_ARG_LOG_VERBOSITY": "5",
    "LLAMA_ARG_HF_REPO": "nobody/nothing",
    "LLAMA_API_KEY": "secret",
    "LLAMA_CACHE": "/no/such/directory",
    "LLAMA_SERVER_SLOTS_DEBUG": "1",
    "GGML_BACKEND_PATH": "/no/such/library.so",
    "HF_TOKEN": "hf_secret",
    "HF_ENDPOINT": f"http://127.0.0.1:{DEAD}",
    "HF_HOME": "/no/such/home",
    "HUGGING_FACE_HUB_TOKEN": "hf_secret",
    "HUGGINGFACE_HUB_CACHE": "/no/such/cache",
    "MODEL_ENDPOINT": f"http://127.0.0.1:{DEAD}",
    "HTTP_PROXY": f"http://127.0.0.1:{DEAD}",
    "http_proxy": f"http://127.0.0.1:{DEAD}",
    "HTTPS_PROXY": f"http://127.0.0.1:{DEAD}",
    "https_proxy": f"http://127.0.0.1:{DEAD}",
    "ALL_PROXY": f"http://127.0.0.1:{DEAD}",
    "all_proxy": f"socks5://127.0.0.1:{DEAD}",
    "NO_PROXY": "example.org",
    "no_proxy": "",
    "NETRC": "/no/such/netrc",
    "CURL_HOME": "/no/such/home",
}
"""Variables that would decide something, each with a value that would be noticed."""

NEEDED = {
    "PATH": "/usr/bin",
    "HOME": "/home/user",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "LD_LIBRARY_PATH": "/opt/lib",
    "CUDA_VISIBLE_DEVICES": "0",
    "ROCR_VISIBLE_DEVICES": "0",
    "GGML_VK_VISIBLE_DEVICES": "0",
    "VK_ICD_FILENAMES": "/etc/vulkan/icd.json",
    "XDG_CACHE_HOME": "/home/user/.cache",
    "MY_LLAMA_FARM": "alpacas",
    "SHELF_LIFE": "long",
}
"""What the loader, the GPU runtimes and the system read, and names that only look alike."""


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port of ours that nobody listens on: connections to it are refused at once."""
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        yield unheard.getsockname()[1]


@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_decide_is_left_out(name: str) -> None:
    assert name not in hermetic_environment({name: HOSTILE[name]}, "s")


def test_everything_else_stays() -> None:
    environment = hermetic_environment(NEEDED, "s")
    assert environment.items() >= NEEDED.items()
    assert environment.keys() - NEEDED.keys() == {SESSION_MARKER, "GGML_NO_BACKTRACE"}


def test_what_the_harness_says_itself_wins() -> None:
    """A harness may run below another one, or below a user who debugs ggml."""
    given = {SESSION_MARKER: "outer", "GGML_NO_BACKTRACE": "0"}
    assert hermetic_environment(given, "inner") == {
        SESSION_MARKER: "inner",
        "GGML_NO_BACKTRACE": "1",
    }


@pytest.mark.parametrize(
    ("users_own", "gpu"), [((), False), (("--device", "none"), False), (("-dev", "Vulkan7"), True)]
)
def test_a_server_on_the_cpu_is_shown_no_gpu(
    config: ServerConfig, llama_build: Build, users_own: tuple[str, ...], gpu: bool
) -> None:
    """The user's word on the device is the last."""
    asked = replace(config, device=CPU, extra_args=users_own)
    assert on_cpu(asked, llama_build.capabilities) is not gpu
    shown = hermetic_environment({"VK_ICD_FILENAMES": "/etc/icd.json"}, "s", gpu=gpu)
    assert (shown["VK_ICD_FILENAMES"] == "/etc/icd.json") is gpu
    assert ("CUDA_VISIBLE_DEVICES" in shown) is not gpu


def test_the_given_environment_is_not_changed() -> None:
    given = dict(HOSTILE)
    hermetic_environment(given, "s")
    assert given == HOSTILE


@pytest.mark.parametrize("name", HOSTILE)
def test_a_server_behaves_the_same(
    name: str, dead_port: int, make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts, answers, and gives back from the prompt cache all but the last token."""
    monkeypatch.setenv(name, HOSTILE[name].replace(DEAD, str(dead_port)))
    with make_server(ready_seconds=10) as server:
        assert name not in psutil.Process(server.pid).environ()
        prompt = prose("P", 120).text
        server.client.completion(prompt)
        server.client.completion(prose("other", 120).text)
        again = server.client.completion(prompt)
        assert again.timings.cache_n == again.prompt_tokens - 1


def test_a_server_carries_the_marker_of_its_session(
    make_server: MakeServer, own_guard: Guard
) -> None:
    """The guard finds by it what it was never told of."""
    with make_server() as server:
        environment = psutil.Process(server.pid).environ()
    assert environment[SESSION_MARKER] == own_guard.session


@pytest.mark.parametrize("name", ["LLAMA_ARG_N_PARALLEL", "LLAMA_ARG_CTX_SIZE"])
def test_what_a_scenario_leaves_out_is_the_servers_own_default(
    name: str, config: ServerConfig, make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = replace(config, parallel=None, ctx_size=None)
    with make_server(bare) as server:
        expected = size_of(server)
    monkeypatch.setenv(name, HOSTILE[name])
    with make_server(bare) as server:
        assert size_of(server) == expected


def size_of(server: LlamaServer) -> tuple[int, int]:
    """Slots, and tokens a slot can hold, as the server itself says."""
    with requests.Session() as session:
        session.trust_env = False
        props: dict[str, Any] = session.get(f"{server.client.url}/props", timeout=10).json()
    return props["total_slots"], props["default_generation_settings"]["n_ctx"]


class _Witness(BaseHTTPRequestHandler):
    """Answers `/health` as a llama-server does, and notes what was asked with which headers."""

    seen: list[dict[str, str]]

    def do_GET(self) -> None:
        self.seen.append(dict(self.headers))
        body = b'{"status": "ok"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing on stderr."""


@contextmanager
def witness() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server on loopback: its URL, and the headers of each request it got."""
    seen: list[dict[str, str]] = []
    handler = type("Witness", (_Witness,), {"seen": seen})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", seen
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory without proxies around it."""
    for name in HOSTILE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("place", ["HOME", "NETRC"])
def test_the_client_reads_no_netrc(place: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = home / (".netrc" if place == "HOME" else "credentials")
    netrc.write_text("default login x password y\n")
    netrc.chmod(0o600)
    if place == "NETRC":
        monkeypatch.setenv("NETRC", str(netrc))
    with witness() as (url, seen):
        Client(url).health()
        requests.get(f"{url}/health", timeout=10)
    ours, control = seen
    assert "Authorization" not in ours
    # Anybody else's would have been sent, so the file is one that is found and understood.
    assert control["Authorization"] == "Basic " + base64.b64encode(b"x:y").decode()


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_the_client_goes_through_no_proxy(
    name: str, home: Path, dead_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, f"http://127.0.0.1:{dead_port}")
    with witness() as (url, seen):
        Client(url).health()
        assert len(seen) == 1
        with pytest.raises(requests.exceptions.ProxyError):
            requests.get(f"{url}/health", timeout=10)
