"""A vLLM whose clients hold all files that it may open: observed, it lives as a bare one does."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from kvscope.run.plugin_folder import write_plugin_folder
from tests.support.pages import sample
from tests.support.process import kvscope
from tests.support.waiting import wait_for
from tests.vllm.observed import PROMPTS, SMALL
from tests.vllm.server import VllmServer, free_port, server_command, server_environment, started

pytestmark = [
    *(pytest.mark.vllm, pytest.mark.nightly, pytest.mark.weekly, pytest.mark.slow),
    pytest.mark.timeout(1800),
]

FILES = 256
CLIENTS = 400
STORM_SECONDS = float(os.environ.get("STORM_SECONDS", "30"))
RESTART_SECONDS = 1.0
UNFINISHED = b"POST /v1/completions HTTP/1.1\r\nHost: storm\r\n"


@contextmanager
def served(
    python: Path, model: Path, folder: Path, environment: dict[str, str]
) -> Iterator[VllmServer]:
    port = free_port()
    limited = ["bash", "-c", f'ulimit -n {FILES}; exec "$@"', "bash"]
    command = limited + server_command(python, model, port, *SMALL)
    with started(command, environment, port, folder, "vllm", start_seconds=600) as server:
        yield server


@contextmanager
def idle_clients(server: VllmServer) -> Iterator[None]:
    """More connections than the server may have files, each with half of a request."""
    port = httpx.URL(server.url).port
    with ExitStack() as stack:
        for _ in range(CLIENTS):
            with suppress(OSError):  # beyond its backlog
                client = socket.create_connection(("127.0.0.1", port or 0), 2)
                stack.enter_context(client).sendall(UNFINISHED)
        yield


def answers_in_a_storm(server: VllmServer) -> tuple[list[list[int]], int]:
    """The answers to a client that was there before, and the health after it."""
    body = {"model": "tiny", "max_tokens": 16, "temperature": 0, "ignore_eos": True}
    answers = []
    with httpx.Client(base_url=server.url, timeout=120) as client:

        def ask(prompt: str) -> list[int]:
            asked = body | {"prompt": prompt, "return_token_ids": True}
            answer = client.post("/v1/completions", json=asked).raise_for_status()
            return [token for choice in answer.json()["choices"] for token in choice["token_ids"]]

        ask(PROMPTS[0])  # the connection that it keeps
        with idle_clients(server):
            end = time.monotonic() + STORM_SECONDS
            while time.monotonic() < end:
                answers += [ask(prompt) for prompt in PROMPTS]
                time.sleep(0.2)

    def health() -> int:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{server.url}/health", timeout=10).status_code
        return 0

    wait_for(lambda: health() == 200, "it answers after the storm")
    return answers[: len(PROMPTS)], len({tuple(answer) for answer in answers})


@contextmanager
def restarting_sidecars(endpoint: str) -> Iterator[None]:
    """A sidecar after the other, each killed after a second of its life."""
    stopping = threading.Event()

    def run() -> None:
        while not stopping.is_set():
            with kvscope("sidecar", "--port", "0", "--no-gpu", "--events", endpoint) as sidecar:
                sidecar.find(r"(http://[\d.]+:\d+)/targets")
                stopping.wait(RESTART_SECONDS)
                sidecar.popen.kill()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def test_idle_clients_hold_all_files_of_an_observed_vllm_and_it_serves_on(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    model = models("llama")
    (tmp_path / "bare").mkdir()
    with served(vllm_python, model, tmp_path / "bare", server_environment()) as server:
        bare = answers_in_a_storm(server)
    sockets = tmp_path / "s"
    sockets.mkdir(mode=0o700)
    write_plugin_folder(tmp_path / "observer")
    environment = server_environment(
        PYTHONPATH=str(tmp_path / "observer"), KVSCOPE_OBSERVER_DIR=str(sockets)
    )
    endpoint = f"vllm=ipc://{sockets}/*"
    with served(vllm_python, model, tmp_path, environment) as server:
        with restarting_sidecars(endpoint):
            observed = answers_in_a_storm(server)
        assert observed == bare
        with kvscope("sidecar", "--port", "0", "--no-gpu", "--events", endpoint) as sidecar:
            url = sidecar.find(r"(http://[\d.]+:\d+)/targets")

            def page() -> str:
                return httpx.get(f"{url}/metrics", timeout=30).text

            balance = "kvscope_kv_ledger_imbalance_blocks"
            wait_for(lambda: sample(page(), balance) == 0, "its pool is followed")
