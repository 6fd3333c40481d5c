"""What a runbook has people type is run: against an engine, a Prometheus and an Alertmanager."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.alerts.stack import Stack, stack
from tests.alerts.test_runbooks import queries, spans
from tests.alerts.tools import ALERTS
from tests.e2e.test_serve import SMALL, url_of
from tests.fakes.nvml import Simulated, build_library, h200, machine
from tests.support.process import ROOT, Process, kvscope
from tests.support.server import greedy
from tests.support.waiting import wait_for

RUNBOOKS = sorted((ALERTS / "runbooks").rglob("*.md"))
OURS = re.compile(r"(kvscope|python|curl|amtool|kill) .|(GET|POST) /api/")
"""What can be run here: other programs ask about a driver, a daemon or a cluster."""
COMMANDS = {span for path in RUNBOOKS for span in spans(path) if OURS.match(span)}

TIMES = r"%{http_code} %{time_total} s\n"
WHOLE = {
    "kvscope advise": "kvscope advise http://HOST:8000",
    "kvscope record": "kvscope record EVENTS FOLDER/run.kvsf --seconds 1",
}
"""Commands of which a runbook gives the beginning."""
SAYS = {
    "kvscope doctor": r"H200",
    "kvscope doctor --target http://HOST:8000": r"kvscope",
    "kvscope advise": r"were observed",
    "kvscope record": r"run\.kvsf",
    "python -m alerts": r"alert: KvscopeTargetDown",
    "python -m alerts --itl MODEL=SECONDS": r'model_name="demo"',
    "python -m alerts --ttft MODEL=SECONDS": r'model_name="demo"',
    "python -m alerts.bare sglang --job 'NAME|OTHER'": r'job=~"NAME\|OTHER"',
    "python -m alerts.bare vllm --job 'NAME|OTHER'": r'job=~"NAME\|OTHER"',
    f"curl -s -o /dev/null -w '{TIMES}' http://HOST:8000/metrics": r"200 \d\.\d",
    "curl -s http://HOST:8000/health": r"ok",
    "curl -s http://PROMETHEUS:9090/api/v1/rules": r"KvscopeWatchdog",
    "curl -s http://PROMETHEUS:9090/api/v1/alertmanagers": r"/api/v2/alerts",
    "amtool alert query --alertmanager.url=http://ALERTMANAGER:9093": r"KvscopeWatchdog",
    "GET /api/preemptions": r"preemptions",
    "GET /api/whatif": r"engines",
    "POST /api/gpu/release": r"released",
    "POST /api/gpu/resume": r"state",
}
"""What each prints."""
GO_ON = {"kill -USR1", "kvscope sidecar --url"}
"""They have a test of their own."""


def test_every_command_of_a_runbook_is_run() -> None:
    assert SAYS.keys() | GO_ON == COMMANDS


def test_whatever_is_not_in_an_image_is_said_to_be_in_a_checkout() -> None:
    copied = set(re.findall(r"^COPY (\w+) \w+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert "exporter" in copied
    for path in RUNBOOKS:
        for span in spans(path):
            if module := re.match(r"python -m (\w+)", span):
                text = path.read_text()
                assert module[1] in copied or "checkout" in text or "alerts/thresholds.py" in text


def live(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that needs the scene below."""
    for name in ("slow", "prometheus", "alertmanager", "amtool"):
        test = getattr(pytest.mark, name)(test)
    return test


@dataclass
class Scene:
    """What the placeholders of the runbooks stand for."""

    engine: Process
    url: str
    events: str
    watching: Stack
    folder: Path
    environment: dict[str, str]

    def filled(self, command: str) -> str:
        command = WHOLE.get(command, command)
        if method := re.match(r"(GET|POST) (/\S+)", command):
            header = "-H 'Content-Type: application/json' "
            command = f"curl -sf -X {method[1]} {header}http://HOST:8000{method[2]}"
        if command.startswith("python -m alerts") and "alerts.bare" not in command:
            command += " --out FOLDER/own.rules.yml && cat FOLDER/own.rules.yml"
        for placeholder, value in {
            "http://HOST:8000": self.url,
            "http://PROMETHEUS:9090": self.watching.url,
            "http://ALERTMANAGER:9093": self.watching.manager,
            "MODEL=SECONDS": "demo=1",
            "EVENTS": self.events,
            "FOLDER": str(self.folder),
        }.items():
            command = command.replace(placeholder, value)
        return command

    def run(self, command: str) -> str:
        """Its output; fails unless it succeeds."""
        programs = (
            f'kvscope() {{ "{sys.executable}" -m exporter.cli "$@"; }}\n'
            f'python() {{ "{sys.executable}" "$@"; }}\n'
        )
        done = subprocess.run(
            ["bash", "-c", programs + self.filled(command)],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """An engine on a simulated card, which has served a request; Prometheus with our rules."""
    absent = [name for name in ("curl", "bash", "cc") if shutil.which(name) is None]
    if absent and os.environ.get("CI") != "true":
        pytest.skip(f"not on PATH: {', '.join(absent)}")
    folder = tmp_path_factory.mktemp("scene")
    library = build_library(folder / "nvml")
    hardware = Simulated(folder / "nvml.state")
    hardware.become(machine(h200()))
    driver = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML_STATE": str(hardware.path)}
    with tempfile.TemporaryDirectory(prefix="kvscope-") as short:
        yield from _played(folder, f"ipc://{short}/e.sock", driver)


def _played(folder: Path, events: str, driver: dict[str, str]) -> Iterator[Scene]:
    """events: a path that a socket may have, which is short."""
    arguments = ("serve", "--port", "0", "--event-endpoint", events, *SMALL)
    with kvscope(*arguments, **driver) as engine:
        url = url_of(engine)
        httpx.post(f"{url}/v1/completions", json=greedy("abc"), timeout=60).raise_for_status()
        environment = {**os.environ, **driver, "KVSCOPE_TARGET": url}
        with stack(folder, url.removeprefix("http://")) as watching:
            # Prometheus may have begun without it, and sends an alert again only after a minute.
            alert = {"labels": {"alertname": "KvscopeWatchdog", "severity": "none"}}
            sent = httpx.post(f"{watching.manager}/api/v2/alerts", json=[alert], timeout=10)
            sent.raise_for_status()
            yield Scene(engine, url, events, watching, folder, environment)


@live
@pytest.mark.parametrize("command", SAYS)
def test_a_command_succeeds_and_says_what_it_is_for(scene: Scene, command: str) -> None:
    said = scene.run(command)
    if "PROMETHEUS" in command or "ALERTMANAGER" in command:  # which have only just been started
        wait_for(lambda: re.search(SAYS[command], scene.run(command)), SAYS[command], 60)
    else:
        assert re.search(SAYS[command], said), said


@live
def test_a_signal_shows_the_step_loop(scene: Scene) -> None:
    scene.engine.send(signal.SIGUSR1)
    scene.engine.find(r'File ".*(step_loop.py)"')
    assert httpx.get(f"{scene.url}/health", timeout=10).status_code == 200


@live
def test_a_servers_own_page_can_be_read_instead(scene: Scene) -> None:
    with kvscope("sidecar", "--url", scene.url, "--port", "0", "--no-gpu") as sidecar:
        sidecar.find(r"(watching)")


@live
def test_a_prometheus_answers_every_query_of_the_runbooks(scene: Scene) -> None:
    asked = [query for path in RUNBOOKS for query in queries(path)]
    assert len(asked) > 150
    with httpx.Client(base_url=scene.watching.url, timeout=10) as client:
        for query in asked:
            answer = client.get("/api/v1/query", params={"query": query}).json()
            assert answer["status"] == "success", f"{query}: {answer}"
