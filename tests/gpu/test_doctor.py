"""`kvscope doctor`: what it says of each machine, and the code it ends with."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml
import pytest
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope.doctor.host import host_findings
from kvscope.doctor.target import target_report
from kvscope_exporter.machine.gpu import GpuPoller, calls
from kvscope_exporter.machine.gpu.visible import DEVICE_ORDER, VISIBLE_DEVICES
from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.metrics import metrics_app
from tests.fakes.nvml import GIB, STATES, Simulated, h200, machine
from tests.gpu.scrapes import Scrapes
from tests.support.waiting import wait_for

NOWHERE = "http://127.0.0.1:9"


class Page:
    """A server whose page is given."""

    def __init__(self, text: str, content_type: str) -> None:
        self._page = (text.encode(), content_type)

    def render(self, accept: str | None = None, detail: object = None) -> tuple[bytes, str]:
        return self._page


@contextmanager
def serving(page: Page | Scrapes) -> Iterator[str]:
    exposition = page.exporter if isinstance(page, Scrapes) else page
    with HttpServer(metrics_app(exposition), "127.0.0.1", 0) as listener:
        yield f"http://127.0.0.1:{listener.port}"


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy")
    for name in (*proxies, VISIBLE_DEVICES, DEVICE_ORDER):
        monkeypatch.delenv(name, raising=False)


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments])


def test_a_healthy_machine_is_one_screen_without_problems(hardware: Simulated) -> None:
    hardware.become(machine(h200(f"{os.getpid()}:{29 * GIB}")))
    with serving(Scrapes(None)) as url:
        result = doctor(url)
    assert result.exit_code == 0, result.output
    assert "driver" in result.output
    assert "590.48.01, CUDA 13.1; 1 GPU(s) watched" in result.output
    assert "110.8 GiB of 140.4 GiB free" in result.output
    assert "1, 1 visible here" in result.output
    assert "valid OpenMetrics" in result.output
    assert "no problems" in result.output
    assert len(result.output.splitlines()) < 24


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("processes_denied", ["processes (no permission)", "bytes of processes (no permission)"]),
        ("not_available", ["bytes of processes (not available)", "utilization (not supported)"]),
        ("desktop", ["ECC (not supported)", "memory temperature (not available)"]),
        ("mig", ["MIG: 2 instance(s)", "memory (no permission)"]),
    ],
)
def test_it_says_what_is_not_readable_and_why(
    hardware: Simulated, name: str, says: list[str]
) -> None:
    hardware.become(STATES[name]())
    result = doctor()
    assert result.exit_code == 0, result.output
    for text in says:
        assert text in result.output


def test_a_card_without_events_says_so(hardware: Simulated) -> None:
    hardware.change({"gpu.0.events": "!3"})
    assert "XIDs (not supported)" in doctor().output


def test_processes_of_another_namespace_are_named_as_such(hardware: Simulated) -> None:
    hardware.change({"gpu.0.processes": f"4194305:{GIB},4194306:{GIB}"})  # above any pid_max
    output = doctor().output
    assert "2, 0 visible here" in output
    assert "none of its 2 processes is visible here: share their pid namespace" in output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("3", "watching 1 of 8 GPUs: CUDA_VISIBLE_DEVICES=3"),
        ("", "watching 0 of 8 GPUs: CUDA_VISIBLE_DEVICES is empty"),
    ],
)
def test_it_says_which_gpus_are_hidden_and_shows_them_when_asked(
    hardware: Simulated, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    hardware.become(machine(*[h200()] * 7, {**h200(), "error": 15}))
    monkeypatch.setenv(VISIBLE_DEVICES, text)
    result = doctor()
    assert result.exit_code == 0, "a card that is lost elsewhere is none of ours"
    assert says in result.output
    result = doctor("--gpu-devices", "all")
    assert result.exit_code == 1
    assert "8 GPU(s) watched" in result.output
    assert "is lost or waits for a reset" in result.output
    assert "watching" not in result.output


def test_a_lost_gpu_is_a_problem(hardware: Simulated) -> None:
    hardware.become(STATES["one_lost"]())
    result = doctor()
    assert result.exit_code == 1
    assert "is lost or waits for a reset" in result.output
    assert "1 problem" in result.output


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"count": 0}, "nvmlDeviceGetCount: gpu_not_found (28)"),
        ({"call.nvmlInitWithFlags.error": 9}, "nvmlInitWithFlags: driver_not_loaded (9)"),
        ({"call.nvmlInitWithFlags.error": 18}, "lib_rm_version_mismatch (18)"),
    ],
)
def test_a_driver_that_is_down_is_a_problem(
    hardware: Simulated, state: dict[str, object], says: str
) -> None:
    hardware.change(state)
    result = doctor()
    assert result.exit_code == 1
    assert says in result.output


def test_a_driver_that_hangs_is_a_problem_and_holds_nobody(hardware: Simulated) -> None:
    hardware.change({"call.nvmlDeviceGetMemoryInfo_v2.delay_ms": 600})
    result = doctor("--timeout", "0.2")
    assert result.exit_code == 1
    assert "NVML did not answer within 0.2 s: the driver hangs" in result.output
    wait_for(lambda: hardware.references == 0)  # before the next test


def test_a_machine_without_nvidia_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)
    monkeypatch.setattr("kvscope.doctor.gpus.has_nvidia", lambda root: False)
    result = doctor()
    assert result.exit_code == 0, result.output
    assert "no NVIDIA GPU here" in result.output
    monkeypatch.setattr("kvscope.doctor.gpus.has_nvidia", lambda root: True)
    result = doctor()
    assert result.exit_code == 1
    assert "libnvidia-ml.so.1 is missing, though the driver is there" in result.output


def test_a_package_that_hides_the_binding_is_a_problem(
    hardware: Simulated, start: Callable[..., GpuPoller], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shadow:
        __file__ = "site-packages/pynvml/__init__.py"

    monkeypatch.setattr(calls, "pynvml", Shadow)
    result = doctor()
    assert result.exit_code == 1
    assert "site-packages/pynvml/__init__.py is not nvidia-ml-py" in result.output
    poller = start(wait=False)
    wait_for(lambda: poller.state == "off")
    assert Scrapes(poller).value("kvscope_gpu_nvml_up") == 0


def test_a_server_that_was_asked_for_has_to_answer() -> None:
    for url in (NOWHERE, "http://["):
        (finding,) = target_report(url, asked_for=True).findings
        assert finding.status == "problem"
    (finding,) = target_report(NOWHERE, asked_for=False).findings
    assert finding.status == "note"


OURS = "kvscope_engine_ready 1\n"


@pytest.mark.parametrize(
    ("text", "content_type", "status"),
    [
        (f"{OURS}# EOF\n", "application/openmetrics-text; version=1.0.0", "ok"),
        (OURS, "application/openmetrics-text; version=1.0.0", "problem"),
        (f"# TYPE a counter\na 1\n{OURS}# EOF\n", "application/openmetrics-text", "problem"),
        (OURS, "text/plain; version=0.0.4", "ok"),
        (f'{OURS}a{{b="c}} 1\n', "text/plain; version=0.0.4", "problem"),
    ],
)
def test_an_exposition_is_parsed_strictly(text: str, content_type: str, status: str) -> None:
    with serving(Page(text, content_type)) as url:
        server, page = target_report(url, asked_for=True, look_for=list).findings
    assert server.status == "ok"
    assert page.status == status


def test_a_wrong_setting_is_a_usage_error() -> None:
    assert doctor("--timeout", "0").exit_code == 2
    assert doctor("--nonsense").exit_code == 2


def test_permissions_namespace_and_limit_of_a_made_up_machine(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    proc = tmp_path / "proc" / "self"
    proc.mkdir(parents=True)
    found = {finding.subject: finding for finding in host_findings(tmp_path)}
    assert found["device files"].status == "note"
    assert found["pid namespace"].status == "ok"
    (tmp_path / "dev" / "nvidiactl").touch()
    (proc / "status").write_text("Name:\tx\nNSpid:\t812\t7\n")
    found = {finding.subject: finding for finding in host_findings(tmp_path)}
    assert found["device files"].status == "ok"
    assert "812 → 7" in found["pid namespace"].text
    (proc / "status").unlink()
    (tmp_path / ".dockerenv").touch()
    found = {finding.subject: finding for finding in host_findings(tmp_path)}
    assert "in a container" in found["pid namespace"].text


def test_device_files_that_are_closed_are_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    finding = next(host_findings(tmp_path))
    assert finding.status == "problem"
    assert "/dev/nvidia0" in finding.text
