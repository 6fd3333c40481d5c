"""Programs that are to be seen, all up: servers, a load on them, a Prometheus on their pages."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import yaml

from kvscope_alerts.rules import rule_file
from kvscope_alerts.timing import Timing
from tests.support.prometheus import Prometheus, prometheus_with
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
SCRAPE_SECONDS = 3
START_SECONDS = 300.0
STOP_SECONDS = 20.0
_WAITS_DIVIDED_BY = 10
"""The waits of alerts; their ranges stay as they are."""


@dataclass(frozen=True, slots=True)
class _Waits(Timing):
    """Shortens `for` and `keep_firing_for` alone, so that minutes are enough."""

    def wait(self, duration: str) -> str:
        return Timing(divisor=_WAITS_DIVIDED_BY, longest=1 << 20).wait(duration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server: its API's address, and that of kvscope's page of it, without a scheme."""

    url: str
    page: str


def kvscope_command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "kvscope", *words]


@contextmanager
def program(
    name: str,
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    up: Callable[[], bool],
) -> Iterator[None]:
    """A program from when it is up until the block ends; its log is in the folder."""
    with (
        (folder / f"{name}.log").open("w") as log,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log) as child,
    ):
        try:
            wait_for(up, f"{name} starts, see its log in {folder}", START_SECONDS)
            yield
        finally:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.TransportError:
        return False


def served(
    name: str, command: Sequence[str], folder: Path, variables: Mapping[str, str], url: str
) -> Any:
    """A server, once its models are listed."""
    return program(name, command, folder, variables, partial(answers, f"{url}/v1/models"))


@contextmanager
def load(folder: Path, server: Server, scenario: str, *options: str) -> Iterator[None]:
    """`kvscope load` until the block ends."""
    command = kvscope_command("load", scenario, server.url, "--duration", "86400")
    variables = own_environment()
    with program("load", [*command, *options], folder, variables, lambda: True):
        yield


def own_environment(**further: str) -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("KVSCOPE_")} | further


@contextmanager
def scraping(
    folder: Path, targets: Sequence[Mapping[str, Any]], seconds: int = SCRAPE_SECONDS
) -> Iterator[Prometheus]:
    """A Prometheus with our rules that has scraped all of them. targets: static configurations."""
    interval = f"{seconds}s"
    configuration = {
        "global": {
            **{"scrape_interval": interval, "scrape_timeout": interval},
            "evaluation_interval": interval,
        },
        "rule_files": ["kvscope.rules.yml"],
        "scrape_configs": [{"job_name": "kvscope", "static_configs": [*targets]}],
    }
    folder.mkdir(exist_ok=True)
    (folder / "kvscope.rules.yml").write_text(rule_file(_Waits()))
    with prometheus_with(yaml.safe_dump(configuration), folder) as running:
        count = sum(len(each["targets"]) for each in targets)
        running.wait_for(f"sum(up) == {count}")
        yield running
