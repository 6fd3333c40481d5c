"""With --fail-open, observer and sidecar neither keep a server from starting nor end its pod."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvscope.inject.pod import OBSERVER, PLUGIN_FOLDER, SIDECAR
from tests.inject.odd_inputs import OBSERVABLE, SHELL_FORM
from tests.inject.pods import added_to, containers, observed, server_of
from tests.inject.run import run
from tests.inject.test_compose_files import LIST, MAPPING, services
from tests.kubernetes.placed import placed
from tests.kubernetes.schemas import API_VERSIONS, pod_problems
from tests.support.process import Process
from tests.support.waiting import wait_for
from tests.vllm.pods import ended

ENDS = ("json", "keeping_block_scalar", "scheduled")


@pytest.mark.parametrize("text", [text for name, text in OBSERVABLE.items() if name != "scheduled"])
def test_a_server_starts_before_and_without_anything_of_ours(text: str) -> None:
    """A kubelet starts ordinary containers in their order, whether or not the ones before could
    be started, and none before all init containers."""
    outcome = run(text, "--fail-open", "--key-secret=page")
    assert outcome.code == 0, outcome.said
    pods = observed(outcome.text)
    assert pods
    for pod in pods:
        names = [one["name"] for one in pod.get("containers") or ()]
        assert names[-2:] == [OBSERVER, SIDECAR], "behind the server"
        assert not {OBSERVER, SIDECAR} & {one["name"] for one in pod.get("initContainers") or ()}
        for one in containers(pod)[-2:]:
            assert "restartPolicy" not in one
            assert not {key for key in one if key.endswith("Probe")}
        spec = {
            key: value for key, value in pod.items() if key not in ("model", "runner", "labels")
        }
        for version in API_VERSIONS:
            assert pod_problems(spec, version) == []
        for one in (server_of(pod), containers(pod)[-2]):
            mounts = {mount["name"]: mount["mountPath"] for mount in one["volumeMounts"]}
            assert mounts[OBSERVER] == PLUGIN_FOLDER, "there when its Python first looks"
    assert run(outcome.text, "--remove").text == text


def test_what_is_said_names_what_it_means_for_the_pod() -> None:
    closed, opened = run(SHELL_FORM).said, run(SHELL_FORM, "--fail-open").said
    assert "(ImagePullBackOff), a pod there does not start its server" in closed
    assert "a server there starts unobserved, and its pod is not ready" in opened


def _container(name: str, folder: Path) -> list[str]:
    """The words of a container of ours, on this machine."""
    (pod,) = observed(run(SHELL_FORM, "--fail-open").text)
    one: Any = added_to(pod, name)
    return [*one["command"], *placed({"/kvscope": folder}, {})(one["args"])]


def test_the_observer_writes_what_the_server_loads_and_stays(tmp_path: Path) -> None:
    with ended(_container(OBSERVER, tmp_path)) as process:
        plugin = tmp_path / Path(PLUGIN_FOLDER).relative_to("/kvscope")
        wait_for(lambda: [*plugin.glob("*/entry_points.txt")], f"it is written\n{process.text}")
        _stays(process)


def test_an_observer_that_cannot_write_says_so_and_stays(tmp_path: Path) -> None:
    (tmp_path / "observer").write_text("in the way")
    with ended(_container(OBSERVER, tmp_path)) as process:
        said = "kvscope: no observer: the server runs unobserved"
        wait_for(lambda: said in process.text, f"it says so\n{process.text}")
        _stays(process)


def test_a_sidecar_that_cannot_start_is_tried_again(tmp_path: Path) -> None:
    """Its container stays: one that ends again and again would take the pod out of service."""
    words = [*_container(SIDECAR, tmp_path), "--an-option-of-a-later-version"]
    with ended(words) as process:
        said = "the sidecar has ended (2) and starts again in 10 s"
        wait_for(lambda: said in process.text, f"it says so\n{process.text}")
        _stays(process)


def _stays(process: Process) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        process.popen.wait(1)  # type: ignore[call-arg]


@pytest.mark.parametrize("text", [MAPPING, LIST], ids=["mapping", "list"])
def test_a_service_does_not_wait_until_its_observer_has_written(text: str) -> None:
    outcome = run(text, "--fail-open")
    assert outcome.code == 0
    of = services(outcome.text)
    servers = [name.removesuffix(f"-{OBSERVER}") for name in of if name.endswith(OBSERVER)]
    for name in servers:
        condition = of[name]["depends_on"][f"{name}-{OBSERVER}"]
        assert condition == {"condition": "service_started", "required": "false"} or condition == {
            "condition": "service_started",
            "required": False,
        }
    assert run(outcome.text, "--remove").text == text


def test_without_an_image_nothing_is_written() -> None:
    """None is published, so pods with the name of ours would never start."""
    outcome = run(SHELL_FORM, image=None)
    assert (outcome.text, outcome.code) == ("", 2)
    assert outcome.said.startswith("kvscope: --exporter-image is needed: no image of kvscope is")
    assert outcome.said.count("\n") == 1
    assert run(run(SHELL_FORM).text, "--remove", image=None).text == SHELL_FORM
    for bad in ("", "two words"):
        assert "expected the name of an image" in run(SHELL_FORM, image=bad).said


def test_a_pipeline_without_pipefail_applies_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("kind: ConfigMap\nmetadata: {name: a}\n")
    command = f"{sys.executable} -m kvscope inject -f config.yaml --exporter-image x | wc -c"
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0"


def test_a_python_that_was_first_imports_what_the_observer_writes(tmp_path: Path) -> None:
    """From a folder that is there, if empty, as the mounted volume is."""
    script = (
        "import json, sys, time\n"
        "from importlib.metadata import entry_points\n"
        "try: import kvscope_events\n"
        "except ImportError: print('absent', flush=True)\n"
        "sys.stdin.readline()\n"
        "(found,) = entry_points(group='vllm.general_plugins', name='kvscope')\n"
        "print(found.load().__module__)\n"
    )
    server = subprocess.Popen(
        [sys.executable, "-S", "-P", "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PYTHONNOUSERSITE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with server:
        assert server.stdin is not None
        assert server.stdout is not None
        first = server.stdout.readline().strip()
        subprocess.run(
            [sys.executable, "-m", "kvscope", "observer", "install", str(tmp_path)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        server.stdin.write("\n")
        server.stdin.flush()
        assert server.stdout.readline().strip() == "kvscope_events.observers.vllm"
    assert first == "absent"
