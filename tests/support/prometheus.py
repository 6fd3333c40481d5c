"""Prometheus from Debian, scraping one target every second."""

import math
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.waiting import wait_for

_CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: kvscope
    static_configs: [{{targets: ["{target}"]}}]
"""
START_SECONDS = 120.0
"""The first scrape comes up to 5 s and one interval after the start; machines are busy."""

_OPTIONS: dict[str, Any] = {"timeout": 5, "verify": ssl.create_default_context()}
"""A context of its own for each query would take longer than the query."""


@dataclass
class Prometheus:
    """A running server."""

    url: str

    def ask(self, expression: str) -> list[float]:
        """Values of the instant query."""
        return [value for _, value in self.labelled(expression)]

    def labelled(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Its series with their labels, and their values."""
        response = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, **_OPTIONS)
        body = response.json()
        assert body["status"] == "success", f"{expression}: {body}"
        return [(each["metric"], float(each["value"][1])) for each in body["data"]["result"]]

    def answers(self, expression: str) -> bool:
        """Whether there is at least one number."""
        return any(not math.isnan(value) for value in self.ask(expression))

    def wait_for(self, expression: str) -> None:
        """Until the expression has a value other than 0."""
        wait_for(lambda: any(self.ask(expression)), expression, START_SECONDS)

    def ready(self) -> bool:
        """Whether it answers queries; it listens before it does."""
        try:
            return httpx.get(f"{self.url}/-/ready", **_OPTIONS).is_success
        except httpx.TransportError:
            return False


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[Prometheus]:
    """Scrapes `target` (host:port); up and scraped once. Its files go to `folder`."""
    with prometheus_with(_CONFIG.format(target=target), folder) as running:
        running.wait_for("up")
        yield running


@contextmanager
def prometheus_with(configuration: str, folder: Path, *options: str) -> Iterator[Prometheus]:
    """Ready, on a free port; `/-/reload` rereads the rules. Its files go to `folder`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "prometheus.yml").write_text(configuration)
    command = [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-lifecycle",
        *options,
    ]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        try:
            running = Prometheus(f"http://127.0.0.1:{port}")
            wait_for(running.ready, f"Prometheus starts, see {folder}/log", START_SECONDS)
            yield running
        finally:
            process.kill()
