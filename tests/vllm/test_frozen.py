"""A process of a real, observed vLLM that is frozen: who is on call learns it within two minutes.

A real Prometheus evaluates the rules as shipped, and scrapes as the chart has it by default.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.alerts.stack import running
from tests.alerts.tools import RULE_FILE
from tests.support.waiting import wait_for
from tests.vllm.observed import SMALL
from tests.vllm.server import (
    VllmServer,
    free_port,
    kvscope_command,
    server_command,
    server_environment,
    started,
)

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.prometheus,
    pytest.mark.nightly,
    pytest.mark.weekly,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

TOLD_SECONDS = 120


class Watching:
    """A Prometheus' alerts."""

    def __init__(self, url: str) -> None:
        self._url = url

    def firing(self) -> list[dict[str, Any]]:
        """Alerts that a human gets."""
        answer = httpx.get(f"{self._url}/api/v1/alerts", timeout=30).json()["data"]["alerts"]
        wanted = ("critical", "warning")
        return [
            alert
            for alert in answer
            if alert["state"] == "firing" and alert["labels"]["severity"] in wanted
        ]


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Watching]:
    port = free_port()
    configuration = {
        "global": {"scrape_interval": "5s", "scrape_timeout": "4s", "evaluation_interval": "5s"},
        "rule_files": [str(RULE_FILE)],
        "scrape_configs": [{"job_name": "kvscope", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    url = f"http://127.0.0.1:{port}"
    with running(
        folder,
        "prometheus",
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        url=url,
    ):
        yield Watching(url)


def process_of(server: VllmServer, name: str) -> int:
    """The process of the server whose command line has the name, and which is not `kvscope run`."""
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in server.members()}
    (found,) = (
        pid for pid, line in lines.items() if name.encode() in line and b"kvscope.cli" not in line
    )
    return found


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def told(watching: Watching, expected: Callable[[dict[str, Any]], bool]) -> float:
    """Seconds until the alert fires; no other critical one may."""
    began = time.monotonic()
    while True:
        alerts = watching.firing()
        critical = [alert for alert in alerts if alert["labels"]["severity"] == "critical"]
        if any(map(expected, critical)):
            assert len(critical) == 1, critical
            return time.monotonic() - began
        assert not critical, critical
        assert time.monotonic() - began < TOLD_SECONDS, alerts
        time.sleep(1)


def is_silent(part: str) -> Callable[[dict[str, Any]], bool]:
    def check(alert: dict[str, Any]) -> bool:
        labels, text = alert["labels"], alert["annotations"]["description"]
        return (
            (labels["alertname"], labels.get("part")) == ("KvscopeEngineDown", part)
            and "has not been heard for" in text
            and "was ready before" in text
        )

    return check


def test_whatever_is_frozen_is_told_within_two_minutes(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    port, own = free_port(), free_port()
    command = kvscope_command(
        *("run", "--port", str(own), "--no-gpu", "--keep", "0", "--"),
        *server_command(vllm_python, models("llama"), port, *SMALL),
    )
    seconds: dict[str, float] = {}
    with (
        started(command, server_environment(), port, tmp_path, "vllm") as server,
        prometheus(tmp_path, f"127.0.0.1:{own}") as watching,
    ):
        server.complete("before", 8)
        time.sleep(75)  # a minute of peace, in which nothing fires
        assert not watching.firing()
        core = process_of(server, "EngineCore")
        asking = [
            threading.Thread(target=server.complete, args=(f"prompt {number}", 900))
            for number in range(4)
        ]
        for thread in asking:
            thread.start()
        time.sleep(2)
        with frozen(core):
            seconds["scheduler, with requests"] = told(watching, is_silent("scheduler"))
            time.sleep(30)
            names = [alert["labels"]["alertname"] for alert in watching.firing()]
            assert "KvscopeServerNotReady" not in names
            assert "KvscopeModelGone" not in names
        for thread in asking:
            thread.join()
        wait_for(lambda: not watching.firing(), "it is over", 300)
        for part, name in (("front_end", "api_server"), ("worker", "Worker")):
            with frozen(process_of(server, name)):
                seconds[f"{part}, idle"] = told(watching, is_silent(part))
            wait_for(lambda: not watching.firing(), "it is over", 300)
    print(seconds)
