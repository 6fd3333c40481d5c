"""Cases that need a process of their own: a driver that hangs, an old one, none at all, the
exit."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvscope.cli.app import every_command
from tests.fakes.nvml import GIB, MIB, Simulated, build_library, h200, machine
from tests.fakes.nvml.library import SONAME
from tests.gpu.scrapes import OWN_FAMILIES
from tests.repo.checkout import ROOT
from tests.support.process import FULL_PAGES

pytestmark = pytest.mark.nightly

MAX_SCRAPE_SECONDS = 0.5
MAX_EXIT_SECONDS = 2.0
_COMMON = """
import json, sys, time
from kvscope_exporter.machine.gpu import Cadence, GpuPoller
from tests.gpu.scrapes import Scrapes
from tests.support.waiting import wait_for
"""
_WEDGED = """
poller = GpuPoller(Cadence(memory=0.05))
poller.start()
scrapes = Scrapes(poller)
wait_for(lambda: scrapes.value("kvscope_gpu_nvml_up") == 1)
print("up", flush=True)
sys.stdin.readline()
wait_for(lambda: scrapes.value("kvscope_gpu_nvml_up") == 0)
seconds = []
for _ in range(20):
    began = time.perf_counter()
    page, _ = scrapes.exporter.render()
    seconds.append(time.perf_counter() - began)
print(json.dumps({
    "slowest": max(seconds),
    "families": sorted(scrapes.names("kvscope_gpu")),
    "release": poller.release(timeout=0.1),
    "now": time.time(),
}), flush=True)
"""
_ALL = """
poller = GpuPoller(Cadence(memory=0.05))
poller.start()
scrapes = Scrapes(poller)
wait_for(lambda: scrapes.value("kvscope_gpu_nvml_up") == 1)
print(json.dumps({
    "families": {
        name: list(scrapes.series(name).values())
        for name in scrapes.names("kvscope_gpu")
    },
    "errors": len(scrapes.series("kvscope_gpu_nvml_errors_total")),
    "refused": sorted(call for _, call in poller.refused),
}))
"""


def environment(library: Path, state: Path) -> dict[str, str]:
    ours = {name: text for name, text in os.environ.items() if not name.startswith("CUDA_")}
    return {
        **ours,
        **FULL_PAGES,
        "LD_LIBRARY_PATH": str(library.parent),
        "FAKE_NVML_STATE": str(state),
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
    }


def run_child(code: str, library: Path, state: Path) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", _COMMON + code],
        env=environment(library, state),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.mark.timed
def test_a_call_that_hangs_for_a_minute_holds_neither_scrapes_nor_the_exit(
    nvml_library: Path, tmp_path: Path
) -> None:
    hardware = Simulated(tmp_path / "nvml.state")
    hardware.become(machine(h200()))
    with subprocess.Popen(
        [sys.executable, "-c", _COMMON + _WEDGED],
        env=environment(nvml_library, hardware.path),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        hardware.change({"call.nvmlDeviceGetMemoryInfo_v2.delay_ms": 60_000})
        child.stdin.write("wedged\n")
        child.stdin.flush()
        answer = json.loads(child.stdout.readline())
        assert child.wait(30) == 0
        exit_seconds = time.time() - answer["now"]
    assert answer["slowest"] < MAX_SCRAPE_SECONDS
    assert set(answer["families"]) == OWN_FAMILIES
    assert answer["release"] == "releasing"
    assert exit_seconds < MAX_EXIT_SECONDS


@pytest.mark.timed
def test_the_exit_waits_for_no_poller(nvml_library: Path, tmp_path: Path) -> None:
    hardware = Simulated(tmp_path / "nvml.state")
    hardware.become(machine(h200()))
    code = _ALL.replace("print(json", "now = time.time()\nprint(json").replace(
        '"errors"', '"now": now, "errors"'
    )
    answer = run_child(code, nvml_library, hardware.path)
    assert time.time() - float(str(answer["now"])) < MAX_EXIT_SECONDS


def test_an_old_driver_has_what_it_has(nvml_library: Path, tmp_path: Path) -> None:
    """Before 510: the first version of the memory call, whose `used` contains the reserve."""
    library = build_library(tmp_path / "old", old_driver=True)
    hardware = Simulated(tmp_path / "nvml.state")
    hardware.become(machine({**h200(f"4242:{29 * GIB}"), "clocks_event_reasons": "0x8"}))
    answer = run_child(_ALL, library, hardware.path)
    families = answer["families"]
    assert isinstance(families, dict)
    assert families["kvscope_gpu_memory_total_bytes"] == [143771 * MIB]
    assert families["kvscope_gpu_memory_free_bytes"] == [(143771 - 614) * MIB - 31157387264]
    assert families["kvscope_gpu_process_memory_bytes"] == [29 * GIB, 0]
    assert families["kvscope_gpu_temperature_celsius"] == [52]
    assert families["kvscope_gpu_clocks_event_active"] == [0, 1, 0, 0, 0]
    for name in ("used_ratio", "component_bytes"):
        assert f"kvscope_gpu_memory_{name}" not in families, "not known is absent"
    assert answer["errors"] == 0
    assert answer["refused"] == [
        "DeviceGetComputeRunningProcesses_v3",
        "DeviceGetCurrentClocksEventReasons",
        "DeviceGetMemoryInfo_v2",
        "DeviceGetTemperatureV",
    ]


@pytest.fixture
def no_library(tmp_path: Path) -> Path:
    """A library under NVML's name that cannot be loaded, even on a machine with a driver."""
    path = tmp_path / "none" / SONAME
    path.parent.mkdir()
    path.touch()
    return path


@contextmanager
def serving(
    env: dict[str, str], *arguments: str, state: str = "serving"
) -> Iterator[tuple[str, list[str]]]:
    """`kvscope engine serve` with the demo model: its URL, and the lines of its log so far.

    state: "loading" for what its page shows before there is a model.
    """
    command = [
        *(sys.executable, "-P", "-m", "kvscope", "engine", "serve", "--port", "0"),
        *arguments,
    ]
    with subprocess.Popen(
        [*command, "--num-gpu-blocks-override", "64", "--max-model-len", "512", "--device", "cpu"],
        env=env,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        log: list[str] = []
        reader = threading.Thread(target=lambda: log.extend(child.stderr or ()), daemon=True)
        url = None
        for line in child.stderr:
            log.append(line)
            match = re.search(rf"{state} demo at (http://[^/;]+)", line)
            if match:
                url = match[1]
                break
        assert url, "".join(log)
        reader.start()
        try:
            yield url, log
        finally:
            child.send_signal(signal.SIGTERM)
            assert child.wait(30) == 0
            reader.join(5)


def fetch(url: str, method: str = "GET") -> str:
    headers = {"Content-Type": "application/json"}  # which a form of another site cannot send
    request = urllib.request.Request(url, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        body: bytes = response.read()
    return body.decode()


def page_with(url: str, line: str) -> str:
    """The first page that has the line."""
    for _ in range(200):
        page = fetch(f"{url}/metrics")
        if line in page.splitlines():
            return page
        time.sleep(0.05)
    raise AssertionError(f"never: {line}")


@pytest.mark.nightly
@pytest.mark.slow
def test_serve_without_a_driver_runs_with_one_line_about_it(
    no_library: Path, tmp_path: Path
) -> None:
    env = environment(no_library, tmp_path / "nvml.state")
    with serving(env) as (url, log):
        page = page_with(url, 'kvscope_server_state{state="ready"} 1.0')
    assert not re.findall(r"^kvscope_gpu_\w+", page, re.MULTILINE), "nothing has failed"
    (line,) = (line for line in log if re.search(r"nvidia|nvml|exporter\.gpu", line, re.IGNORECASE))
    assert "no NVIDIA driver library on this machine: no GPU metrics" in line


@pytest.mark.slow
def test_serve_reads_gpus_and_releases_them(nvml_library: Path, tmp_path: Path) -> None:
    hardware = Simulated(tmp_path / "nvml.state")
    hardware.become(machine(h200()))
    with serving(environment(nvml_library, hardware.path)) as (url, _):
        page = page_with(url, "kvscope_gpu_nvml_up 1.0")
        assert re.search(r'^kvscope_gpu_memory_total_bytes\{gpu="0",uuid=', page, re.MULTILINE)
        assert re.search(r"^kvscope_host_memory_resident_bytes\{", page, re.MULTILINE)
        assert json.loads(fetch(f"{url}/api/gpu/release", "POST")) == {"state": "released"}
        assert "kvscope_gpu_nvml_up 0.0" in fetch(f"{url}/metrics").splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "gpus"), [((), {"1"}), (("--gpu-devices", "all"), {*"01"})])
def test_serve_watches_the_gpus_that_cuda_leaves_to_it_or_all(
    nvml_library: Path, tmp_path: Path, arguments: tuple[str, ...], gpus: set[str]
) -> None:
    hardware = Simulated(tmp_path / "nvml.state")
    hardware.become(machine(h200(), h200()))
    env = {**environment(nvml_library, hardware.path), "CUDA_VISIBLE_DEVICES": "1"}
    with serving(env, *arguments, state="loading") as (url, log):
        page = page_with(url, "kvscope_gpu_nvml_up 1.0")
    assert set(re.findall(r'^kvscope_gpu_up\{gpu="(\d)"', page, re.MULTILINE)) == gpus
    said = "watching 1 of 2 GPUs: CUDA_VISIBLE_DEVICES=1" in "".join(log)
    assert said == (not arguments)


def test_gpus_are_read_unless_the_flag_says_no() -> None:
    serve = every_command()["engine serve"]
    for arguments, wanted in (([], True), (["--gpu"], True), (["--no-gpu"], False)):
        assert serve.make_context("serve", arguments).params["gpu"] is wanted
