"""`kvscope engine serve` while its model loads: what answers, and how it ends."""

import signal
import time
from pathlib import Path

import httpx
import pytest

from tests.support.process import Process, forked_kvscope, kvscope
from tests.support.waiting import wait_for

pytestmark = pytest.mark.nightly

SMALL = ("--max-model-len", "1024", "--num-gpu-blocks-override", "128")
PROMPT_SECONDS = 6.0
"""An end while loading; importing torch alone takes longer."""


def url_while_loading(process: Process) -> str:
    return process.find(r"loading \S+ at (\S+);")


def loading(process: Process) -> bool:
    return "serving" not in process.text


def test_metrics_and_health_answer_before_the_model_is_loaded() -> None:
    with kvscope("engine", "serve", "--port", "0", "--metrics-port", "0", *SMALL) as process:
        url = url_while_loading(process)
        metrics_url = process.find(r"metrics: (\S+)")
        with httpx.Client() as client:
            page = client.get(f"{url}/metrics")
            beside = client.get(metrics_url)
            health = client.get(f"{url}/health")
            landing = client.get(f"{url}/")
            models = client.get(f"{url}/v1/models")
            completion = client.post(f"{url}/v1/completions", json={"prompt": "a"})
            assert loading(process), "the model was there before it could be asked"
            assert (page.status_code, beside.status_code) == (200, 200)
            assert 'kvscope_engine_ready{engine="0",model_name="demo"} 0.0' in page.text
            assert 'kvscope_server_state{state="loading"} 1.0' in page.text
            assert "<td>demo</td><td>loading</td>" in landing.text
            assert "kvscope_kv_blocks" not in page.text
            assert (health.status_code, health.json()) == (503, {"status": "loading"})
            for refused in (models, completion):
                assert refused.status_code == 503
                assert int(refused.headers["retry-after"]) > 0
                assert refused.json()["error"]["type"] == "service_unavailable"
            wait_for(lambda: client.get(f"{url}/health").is_success, "it is ready", 60)
            assert client.get(f"{url}/v1/models").json()["data"][0]["id"] == "demo"
            page = client.get(f"{url}/metrics")
            assert 'kvscope_engine_ready{engine="0",model_name="demo"} 1.0' in page.text
            assert 'kvscope_server_state{state="ready"} 1.0' in page.text
            for base in (url, metrics_url.removesuffix("/metrics")):
                assert "<td>demo</td><td>ready</td>" in client.get(f"{base}/").text
            assert "kvscope_kv_blocks" in page.text
        process.send(signal.SIGTERM)
        assert process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.timed
def test_a_signal_while_loading_ends_it_at_once(number: signal.Signals) -> None:
    with kvscope("engine", "serve", "--port", "0", "--metrics-port", "0", *SMALL) as process:
        url_while_loading(process)
        began = time.monotonic()
        process.send(number)
        assert process.wait() == 0
        assert time.monotonic() - began < PROMPT_SECONDS
        assert loading(process)
    assert "Traceback" not in process.text
    assert "Fatal" not in process.text


def test_ctrl_c_while_the_demo_loads_ends_it_at_once() -> None:
    with kvscope("demo", "--port", "0") as process:
        process.find(r"(loading)")
        process.send(signal.SIGINT)
        assert process.wait(PROMPT_SECONDS) == 0
    assert "Traceback" not in process.text


def test_a_signal_while_loading_removes_the_socket_of_the_events(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    file = tmp_path / "engine.sock"
    with kvscope(
        "engine", "serve", "--port", "0", "--event-endpoint", f"ipc://{file}", *SMALL
    ) as process:
        url_while_loading(process)
        assert file.exists(), "events are published before the model is loaded"
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    assert not file.exists()


def test_a_failure_to_load_ends_the_process_with_one_line(tmp_path: Path) -> None:
    with forked_kvscope("engine", "serve", "--port", "0", "--model", str(tmp_path)) as process:
        assert process.wait(60) == 2
    errors = [line for line in process.lines if line.startswith("kvscope: ")]
    assert errors == [
        f"kvscope: {tmp_path}: no config.json; give the folder that save_pretrained or the "
        "download wrote\n"
    ]
    assert "Traceback" not in process.text


@pytest.mark.slow
def test_without_an_exporter_events_go_out_and_metrics_say_where(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    endpoint = f"ipc://{tmp_path}/engine.sock"
    arguments = ("--event-endpoint", endpoint, "--no-exporter", *SMALL)
    with forked_kvscope("engine", "serve", "--port", "0", *arguments) as process:
        url = process.find(r"serving \S+ at (\S+)/v1")
        page = httpx.get(f"{url}/metrics")
        assert page.status_code == 404
        assert endpoint in page.text
        assert "kvscope sidecar" in page.text
        assert process.find(r"metrics: (\S+)") == "none"
        process.send(signal.SIGTERM)
        assert process.wait() == 0


@pytest.mark.slow
def test_auto_puts_the_socket_into_the_run_directory(tmp_path: Path) -> None:
    environment = {"KVSCOPE_RUN_DIR": str(tmp_path / "run")}
    arguments = ("--event-endpoint", "auto", "--port", "0", *SMALL)
    with forked_kvscope("engine", "serve", *arguments, **environment) as process:
        port = url_while_loading(process).rpartition(":")[2]
        assert (tmp_path / "run" / f"serve-{port}.sock").exists()
        assert process.find(r"events: (\S+)") == f"ipc://{tmp_path}/run/serve-{port}.sock"
        process.send(signal.SIGTERM)
        assert process.wait() == 0


@pytest.mark.nightly
def test_the_gpu_routes_ask_for_the_api_key() -> None:
    with forked_kvscope("engine", "serve", "--port", "0", "--api-key", "secret", *SMALL) as process:
        url = process.find(r"serving \S+ at (\S+)/v1")
        key = {"Authorization": "Bearer secret"}
        for path in ("release", "resume"):
            assert httpx.post(f"{url}/api/gpu/{path}").status_code == 401
            assert httpx.post(f"{url}/api/gpu/{path}", headers=key).is_success
        assert httpx.get(f"{url}/metrics").is_success, "a scraper needs no key"
        process.send(signal.SIGTERM)
        assert process.wait() == 0
