"""`kvscope serve` as the child of a replica: its API on loopback, page and KV events on the node's
address."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TypedDict

import httpx

START_SECONDS = 1800.0
"""Long enough to read a large checkpoint; Serve has no limit of its own for that."""
STOP_SECONDS = 30.0
HEALTH_SECONDS = 5.0


class EngineEndedError(Exception):
    """The child is no longer there, or never became ready."""


class Addresses(TypedDict):
    """One replica, for routers, scrapers and `kvscope fleet`."""

    kv_events: str
    replay: str
    page: str
    """HOST:PORT of `/metrics`."""


class EngineProcess:
    """Starts on construction; `wait_until_ready` returns once it answers."""

    def __init__(self, options: Sequence[str], host: str) -> None:
        """options: of `kvscope serve`. host: this node's address, for other processes."""
        api, page, events, replay = free_ports(4, host)
        published = {
            "enable_kv_cache_events": True,
            "endpoint": f"tcp://{host}:{events}",
            "replay_endpoint": f"tcp://{host}:{replay}",
            "bind": True,
            "int_block_hashes": False,
        }
        self.url = f"http://127.0.0.1:{api}"
        self.addresses = Addresses(
            kv_events=f"tcp://{host}:{events}",
            replay=f"tcp://{host}:{replay}",
            page=f"{host}:{page}",
        )
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "deploy.ray.bound", sys.executable, "-m", "kvscope"),
                *("serve", *options, "--host", "127.0.0.1", "--port", str(api)),
                *("--metrics-host", host, "--metrics-port", str(page)),
                *("--kv-events-config", json.dumps(published), "--exit-on-failure"),
            ],
            env={**os.environ, "KVSCOPE_RAY_PARENT": str(os.getpid())},
        )

    def wait_until_ready(self) -> None:
        """Blocks while the model loads. Raises EngineEndedError."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            self.check_running()
            try:
                self.check_health()
            except (EngineEndedError, httpx.HTTPError):
                if time.monotonic() > deadline:
                    self.stop()
                    raise
                time.sleep(0.2)
            else:
                return

    def check_running(self) -> None:
        """Raises EngineEndedError."""
        code = self._process.poll()
        if code is not None:
            raise EngineEndedError(f"kvscope serve ended with {code}: see the log of this replica")

    def check_health(self) -> None:
        """Raises EngineEndedError or httpx.HTTPError unless the engine makes progress."""
        self.check_running()
        answer = httpx.get(f"{self.url}/health", timeout=HEALTH_SECONDS, trust_env=False)
        if answer.status_code != httpx.codes.OK:
            raise EngineEndedError(f"kvscope serve: {answer.status_code} {answer.text}")

    def stop(self) -> None:
        """End it, in an orderly way if it still can."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_ports(count: int, host: str) -> list[int]:
    """Ports that are free now. If another process is faster, Serve starts the replica again."""
    with ExitStack() as stack:
        ports = []
        for _ in range(count):
            probe = stack.enter_context(socket.socket())
            probe.bind((host, 0))
            ports.append(probe.getsockname()[1])
        return ports
