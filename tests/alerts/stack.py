"""Prometheus with shortened rules, Alertmanager with the example of a webhook, and its receiver."""

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml

from deploy.alerting import stack_values
from kvscope_alerts.rules import rule_file
from kvscope_alerts.timing import Timing, seconds_of
from tests.alerts.provoked import key
from tests.alerts.tools import ALERTMANAGER
from tests.support.waiting import wait_for

DIVISOR = 60
START_SECONDS = 120.0


@dataclass
class Notice:
    """One alert of one notification."""

    receiver: str
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]


@dataclass
class Webhook:
    """Received messages, in order."""

    url: str
    notices: list[Notice] = field(default_factory=list)
    messages: list[list[Notice]] = field(default_factory=list)
    """The same by message."""
    arrivals: list[float] = field(default_factory=list)
    """When each message came; monotonic, in seconds."""

    def seen(self, status: str) -> set[str]:
        """Keys of the alerts of that status."""
        return {key(notice.labels) for notice in tuple(self.notices) if notice.status == status}

    def series(self) -> dict[tuple[tuple[str, str], ...], str]:
        """The last that was said of each alert, by its labels, however often it came."""
        return {
            tuple(sorted(notice.labels.items())): notice.status for notice in tuple(self.notices)
        }

    def now(self) -> dict[str, str]:
        """The last that was said of each alert, by key; firing if one of its series is."""
        states: dict[str, str] = {}
        for labels, status in self.series().items():
            name = key(dict(labels))
            states[name] = "firing" if "firing" in (status, states.get(name)) else status
        return states


@contextmanager
def webhook() -> Iterator[Webhook]:
    """On a free loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = [
                Notice(
                    self.path.strip("/"),
                    alert["status"],
                    alert["labels"],
                    alert["annotations"],
                )
                for alert in body["alerts"]
            ]
            received.notices.extend(message)
            received.arrivals.append(time.monotonic())
            received.messages.append(message)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received = Webhook(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def alertmanager_config(url: str, *, inhibit: bool, faster: float | None, stack: bool) -> str:
    """The shipped example, with our receiver's address, and waits of a second or divided by
    `faster`. stack: that of kube-prometheus-stack, with our values and its own waits."""
    config: Any = yaml.safe_load((ALERTMANAGER / "alertmanager.webhook.yml").read_text())
    if stack:
        config = stack_values()["alertmanager"]["config"]
        waits = {"group_wait": "30s", "group_interval": "5m", "repeat_interval": "12h"}
        config["route"] |= {"receiver": "stack", "group_by": ["namespace"], **waits}
        config["receivers"] = [{"name": "stack"}, {"name": "null"}]
    for receiver in config["receivers"]:
        receiver["webhook_configs"] = [{"url": f"{url}/{receiver['name']}", "send_resolved": True}]
    for route in (config["route"], *config["route"]["routes"]):
        if faster is None:
            route |= {"group_wait": "0s", "group_interval": "1s"}
            continue
        for wait in {"group_wait", "group_interval", "repeat_interval"} & route.keys():
            route[wait] = f"{1000 * seconds_of(route[wait]) / faster:.0f}ms"
    if not inhibit:
        del config["inhibit_rules"]
    return str(yaml.safe_dump(config))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(folder: Path, name: str, *command: str, url: str) -> Iterator[None]:
    """The program, until it is ready; killed at the end. Its output is in `folder`."""

    def ready() -> bool:
        try:
            return httpx.get(f"{url}/-/ready", timeout=5).is_success
        except httpx.TransportError:
            return False

    with (
        (folder / f"{name}.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        try:
            wait_for(ready, f"{name} starts, see {folder}/{name}.log", START_SECONDS)
            yield
        finally:
            process.kill()


@contextmanager
def alertmanager(
    folder: Path,
    hook: str,
    *,
    inhibit: bool,
    faster: float | None = None,
    stack: bool = False,
) -> Iterator[str]:
    """Its address."""
    program = shutil.which("prometheus-alertmanager") or "alertmanager"
    url = f"http://127.0.0.1:{free_port()}"
    config = folder / "alertmanager.yml"
    config.write_text(alertmanager_config(hook, inhibit=inhibit, faster=faster, stack=stack))
    with running(
        folder,
        "alertmanager",
        program,
        f"--config.file={config}",
        f"--storage.path={folder}/alertmanager",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
        url=url,
    ):
        yield url


@dataclass
class Stack:
    """Prometheus and what it sends."""

    url: str
    manager: str
    """Alertmanager's address."""
    hook: Webhook
    folder: Path

    def scrape(self, *targets: str) -> None:
        """These and no others, within a second or two."""
        draft = self.folder / "targets.draft"
        draft.write_text(json.dumps([{"targets": [*targets]}] if targets else []))
        draft.replace(self.folder / "targets.json")

    def ask(self, expression: str) -> list[Any]:
        response = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=5)
        result: list[Any] = response.json()["data"]["result"]
        return result


@contextmanager
def stack(folder: Path, *targets: str) -> Iterator[Stack]:
    """Everything, scraping every second. No inhibition: each alert is to be seen."""
    with ExitStack() as parts:
        hook = parts.enter_context(webhook())
        manager = parts.enter_context(alertmanager(folder, hook.url, inhibit=False))
        url = f"http://127.0.0.1:{free_port()}"
        (folder / "kvscope.rules.yml").write_text(rule_file(Timing(divisor=DIVISOR)))
        everything = Stack(url, manager, hook, folder)
        everything.scrape(*targets)
        config = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
            },
            "rule_files": ["kvscope.rules.yml"],
            "alerting": {
                "alertmanagers": [
                    {"static_configs": [{"targets": [manager.removeprefix("http://")]}]}
                ]
            },
            "scrape_configs": [
                {
                    "job_name": "kvscope",
                    "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        parts.enter_context(
            running(
                folder,
                "prometheus",
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address={url.removeprefix('http://')}",
                url=url,
            )
        )
        yield everything
