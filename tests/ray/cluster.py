"""A cluster of one node on loopback, inside `own_network`, and the applications deployed to it."""

import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.support.process import SOURCES
from tests.support.waiting import wait_for

START_SECONDS = 120.0
DEPLOY_SECONDS = 240.0
STOP_SECONDS = 60.0
DASHBOARD = "http://127.0.0.1:8265"
LISTEN = {"host": "127.0.0.1", "port": 8000}
API = "http://127.0.0.1:8000"
APPLICATIONS = f"{DASHBOARD}/api/serve/applications/"


@dataclass
class Cluster:
    """Ray with Serve; its processes end with it."""

    folder: Path
    token: str

    def deploy(self, configuration: Path, **arguments: Any) -> None:
        """The file's one application and no other, with these arguments changed, once it runs."""
        document = yaml.safe_load(configuration.read_text())
        document |= {"proxy_location": "EveryNode", "http_options": LISTEN}
        (application,) = document["applications"]
        application["name"] = "app"
        application["args"] |= arguments
        answer = httpx.put(APPLICATIONS, json=document, headers=self._key, timeout=60)
        assert answer.status_code == 200, answer.text
        wait_for(self._deployed, "deployed", DEPLOY_SECONDS)
        assert self.status == "RUNNING", f"{self.application}\n{self.tail()}"

    def clear(self) -> None:
        """No applications, and none of their processes."""
        answer = httpx.delete(APPLICATIONS, headers=self._key, timeout=60)
        assert answer.status_code == 200, answer.text
        wait_for(lambda: not self._details()["applications"], "cleared", STOP_SECONDS)

    @property
    def application(self) -> dict[str, Any]:
        found: dict[str, Any] = self._details()["applications"].get("app", {})
        return found

    @property
    def status(self) -> str:
        return str(self.application.get("status", "NONE"))

    def replicas(self, deployment: str) -> dict[str, int]:
        """The pids of its running replicas, by id."""
        listed = self.application["deployments"][deployment]["replicas"]
        return {each["replica_id"]: each["pid"] for each in listed if each["state"] == "RUNNING"}

    def tail(self) -> str:
        """The last lines of every log of Serve."""
        files = sorted(self.folder.glob("session_latest/logs/serve/*.log"))
        return "\n".join(f"{file.name}\n{_end_of(file)}" for file in files)

    def _details(self) -> dict[str, Any]:
        details: dict[str, Any] = self._ask().json()
        return details

    def is_up(self) -> bool:
        try:
            return self._ask().status_code == 200
        except httpx.HTTPError:
            return False

    def _ask(self) -> httpx.Response:
        return httpx.get(APPLICATIONS, headers=self._key, timeout=30)

    @property
    def _key(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def _deployed(self) -> bool:
        return self.status in ("RUNNING", "DEPLOY_FAILED", "UNHEALTHY")


@contextmanager
def cluster(python: Path, folder: Path, environment: Mapping[str, str]) -> Iterator[Cluster]:
    """Started for the block. folder: short, since sockets lie below it; environment: of its node,
    and so of what it starts, before ours."""
    log = folder / "ray.log"
    token = folder / "token"
    token.write_text(secrets.token_hex(16))
    token.chmod(0o600)
    settings = {
        **os.environ,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "PYTHONPATH": SOURCES,
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else loopback is replaced
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # by default 15, which beside other work is hardly any time
        "HF_HUB_OFFLINE": "1",
        **environment,
    }
    command = [
        *(str(python.parent / "ray"), "start", "--head", "--block", "--disable-usage-stats"),
        *("--node-ip-address", "127.0.0.1", "--num-cpus", "8", "--temp-dir", str(folder / "r")),
        *("--object-store-memory", str(128 << 20)),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=settings, cwd=folder, stdout=output, stderr=subprocess.STDOUT
        )
    running = Cluster(folder / "r", token.read_text())
    try:
        wait_for(lambda: process.poll() is not None or running.is_up(), "Ray is up", START_SECONDS)
        assert process.poll() is None, _end_of(log)
        yield running
        running.clear()  # otherwise Ray waits half a minute for it at its end
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def _end_of(file: Path, lines: int = 30) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])
