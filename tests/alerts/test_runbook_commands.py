"""Runs the commands of the runbooks: against an engine, a Prometheus and an Alertmanager."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from tests.alerts.runbook_commands import PAGES, Effect, commands, queries, spans
from tests.alerts.runbook_scene import Placeholders, typed
from tests.alerts.stack import Stack, stack
from tests.e2e.test_serve import SMALL, url_of
from tests.fakes.nvml import Simulated, build_library, h200, machine
from tests.support.http_peer import serving, text
from tests.support.process import ROOT, Process, forked_kvscope, kvscope
from tests.support.server import greedy
from tests.support.waiting import wait_for

SAYS = {
    r"kvscope doctor": r"H200",
    r"kvscope doctor http\S+": r"kvscope",
    r"kvscope rec save .*": r"run\.kvsr",
    r"kvscope observer stacks .*": r"step_loop\.py",
    r"python -m kvscope_alerts --(itl|ttft) .*": r'model_name="demo"',
    r"python -m kvscope_alerts\.bare .*": r'job=~"NAME\|OTHER"',
    r"curl .*%\{http_code\}.*": r"200",
    r"curl .*/api/v1/(rules|alerts)": r"KvscopeWatchdog",
    r"curl .*/api/v1/alertmanagers": r"/api/v2/alerts",
    r"curl .*/api/preemptions": r"preemptions",
    r"curl .*/api/fleet": r"replicas",
    r"curl .*/api/gpu/release": r"released",
    r"curl .*/api/gpu/resume": r"state",
    r"amtool .* alert query": r"KvscopeWatchdog",
    r"amtool .* silence query": r"(?m)^ID",
    r"amtool .* silence add .*": r"^[0-9a-f-]{36}\s*$",
    r"ps .*": r"-m kvscope",
}
"""Expected output of each."""
ONE_BY_ONE = [text for text in typed() if " silence add " not in text]
SILENCES = [text for text in typed() if " silence add " in text]


def expected(command: str) -> str:
    found = [says for form, says in SAYS.items() if re.fullmatch(form, command)]
    assert len(found) == 1, command
    return found[0]


def test_every_command_of_a_runbook_is_run() -> None:
    """Here, or in the tests below for clusters, signals and sidecars."""
    for command in typed():
        expected(command)
    assert all(any(re.fullmatch(form, command) for command in typed()) for form in SAYS)


def test_whatever_is_not_in_an_image_is_said_to_be_in_a_checkout() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    copied = set(re.findall(r"^COPY (?:\w+/)?(\w+) [\w/]+$", dockerfile, re.MULTILINE))
    assert "kvscope_exporter" in copied
    for path in PAGES:
        for span in spans(path):
            if module := re.match(r"python -m (\w+)", span):
                text = path.read_text()
                assert (
                    module[1] in copied
                    or "checkout" in text
                    or "alerts/kvscope_alerts/thresholds.py" in text
                )


CLUSTER = sorted({c.text for path in PAGES for c in commands(path) if c.program == "kubectl"})


@pytest.mark.kubectl
@pytest.mark.parametrize("command", CLUSTER)
def test_kubectl_understands_a_command(command: str, tmp_path: Path) -> None:
    """It gets as far as asking the cluster, which is not there; a wrong flag ends it before."""
    program, rest = command.split(" ", 1)
    line = f"{program} --server=http://127.0.0.1:1 {rest}".replace("=N", "=2").replace(
        "IMAGE", "image"
    )
    done = subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, "KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert re.search(r"connection refused|was refused", done.stderr), done.stderr


@pytest.mark.kubectl
def test_kubectl_refuses_a_flag_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="unknown flag"):
        test_kubectl_understands_a_command("kubectl delete pod POD --grace=1", tmp_path)


def live(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that needs the scene below."""
    for name in ("slow", "prometheus", "alertmanager", "amtool"):
        test = getattr(pytest.mark, name)(test)
    return test


@dataclass
class Scene:
    """Values of the runbooks' placeholders."""

    engine: Process
    watching: Stack
    places: Placeholders


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """An engine on a simulated card, which has served a request; Prometheus with our rules."""
    absent = [name for name in ("curl", "bash", "cc", "ps") if shutil.which(name) is None]
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
    arguments = ("engine", "serve", "--port", "0", "--event-endpoint", events, *SMALL)
    with kvscope(*arguments, **driver) as engine:
        url = url_of(engine)
        httpx.post(f"{url}/v1/completions", json=greedy("abc"), timeout=60).raise_for_status()
        environment = {**os.environ, **driver}
        following = ("fleet", f"--sidecar={url}", "--port", "0")
        with (
            forked_kvscope(*following) as fleet,
            stack(folder, url.removeprefix("http://")) as watching,
        ):
            # Prometheus may have begun without it, and sends an alert again only after a minute.
            alert = {"labels": {"alertname": "KvscopeWatchdog", "severity": "none"}}
            sent = httpx.post(f"{watching.manager}/api/v2/alerts", json=[alert], timeout=10)
            sent.raise_for_status()
            places = Placeholders(
                server=url,
                page=url,
                events=events,
                socket=events,
                pid=engine.popen.pid,
                folder=folder,
                environment=environment,
                prometheus=watching.url,
                alertmanager=watching.manager,
                fleet=fleet.find(r"the fleet: (http://\S+)"),
            )
            yield Scene(engine, watching, places)


@live
@pytest.mark.parametrize("command", ONE_BY_ONE)
def test_a_command_succeeds_and_says_what_it_is_for(scene: Scene, command: str) -> None:
    says = expected(command)
    said = scene.places.run(command)
    if "PROMETHEUS" in command or "ALERTMANAGER" in command:  # which have only just been started
        wait_for(lambda: re.search(says, scene.places.run(command)), says, 60)
    else:
        assert re.search(says, said), said
    assert httpx.get(f"{scene.places.server}/health", timeout=10).status_code == 200


@live
def test_every_silence_is_accepted_as_it_stands(scene: Scene) -> None:
    for command in SILENCES:
        assert re.search(expected(command), scene.places.run(command))
    answer = httpx.get(f"{scene.watching.manager}/api/v2/silences", timeout=10).json()
    named = {m["value"] for each in answer for m in each["matchers"] if m["name"] == "alertname"}
    assert named == {re.findall(r"alertname=(\w+)", command)[0] for command in SILENCES}
    assert all(matcher["isEqual"] for each in answer for matcher in each["matchers"])


@live
def test_a_signal_shows_the_step_loop(scene: Scene) -> None:
    signals = {c.text for path in PAGES for c in commands(path) if c.program == "kill"}
    assert signals
    for command in signals:
        scene.places.run(command)
    scene.engine.find(r'File ".*(step_loop.py)"')
    assert httpx.get(f"{scene.places.server}/health", timeout=10).status_code == 200


@live
def test_a_servers_own_page_can_be_read_instead(scene: Scene) -> None:
    named = [span for path in PAGES for span in spans(path) if span.startswith("kvscope sidecar")]
    assert named
    page = Path(__file__).with_name("bare") / "pages" / "vllm.txt"
    with serving({"/metrics": text(page.read_text())}) as server:
        places = replace(scene.places, server=server.url)
        for command in named:
            arguments = places.filled(command).split()[1:]
            with forked_kvscope(*arguments, "--port", "0", "--no-gpu") as sidecar:
                sidecar.find(r"(watching)")


@live
def test_a_prometheus_answers_every_query_of_the_runbooks(scene: Scene) -> None:
    asked = [query for path in PAGES for query in queries(path)]
    assert len(asked) > 150
    instance = scene.places.server.removeprefix("http://")
    with httpx.Client(base_url=scene.watching.url, timeout=10) as client:
        for query in asked:
            filled = query.replace("INSTANCE", instance).replace("MODEL", "demo")
            answer = client.get("/api/v1/query", params={"query": filled}).json()
            assert answer["status"] == "success", f"{query}: {answer}"


def test_what_is_run_here_reads_or_says_what_it_loses() -> None:
    """The list that decides is the one that the runbooks are held to."""
    effects = {c.text: c.effect for path in PAGES for c in commands(path)}
    losing = [text for text in typed() if effects.get(text, Effect.READS) is not Effect.READS]
    assert typed()[-len(losing) :] == losing, "those come last"
