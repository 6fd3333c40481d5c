"""The state of a real vLLM behind a sidecar that was there first: from expected to gone."""

import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from kvscope.run.plugin_folder import write_plugin_folder
from tests.support.pages import sample
from tests.support.process import kvscope
from tests.support.states import PHASE, PHASES, States
from tests.support.waiting import wait_for
from tests.vllm.observed import SMALL
from tests.vllm.server import free_port, server_command, server_environment, started

pytestmark = [
    *(pytest.mark.vllm, pytest.mark.nightly, pytest.mark.weekly, pytest.mark.slow),
    pytest.mark.timeout(900),
]


def _weights(part: str, page: str) -> float:
    return sample(page, f"kvscope_start_weights_{part}_bytes", worker="0") or 0


def _later(options: tuple[str, ...]) -> float:
    """Seconds from the first answer of a further sidecar until it knows a vLLM that idles."""
    with kvscope("sidecar", "--port", "0", "--no-gpu", *options) as sidecar:
        url = sidecar.find(r"(http://[\d.]+:\d+)/targets")
        began = time.monotonic()

        def knows() -> bool:
            page = httpx.get(f"{url}/metrics", timeout=30).text
            blocks = sample(page, "kvscope_kv_blocks", state="active")
            return blocks is not None and sample(page, "kvscope_server_state", state="ready") == 1

        wait_for(knows, "a later sidecar knows the state", 30)
        return time.monotonic() - began


def test_a_real_vllm_is_expected_loads_is_ready_and_is_gone(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    sockets, port = tmp_path / "s", free_port()
    sockets.mkdir(mode=0o700)
    plugin = tmp_path / "plugin"
    write_plugin_folder(plugin)
    environment = server_environment(PYTHONPATH=str(plugin), KVSCOPE_OBSERVER_DIR=str(sockets))
    command = server_command(vllm_python, models("llama"), port, *SMALL)
    options = ("--events", f"v=ipc://{sockets}/*", "--url", f"v=http://127.0.0.1:{port}")
    with kvscope("sidecar", "--port", "0", "--no-gpu", *options) as sidecar:
        states = States(sidecar.find(r"(http://[\d.]+:\d+)/targets"))
        wait_for(lambda: states.seen == ["expected"], "nothing of it is there")
        began = time.monotonic()
        with started(command, environment, port, tmp_path, "vllm") as server:
            wait_for(lambda: states.seen[-1] == "ready", "it is ready", 60)
            assert states.seen == ["expected", "loading", "ready"]
            assert states.ready_while_loading, "kvscope_engine_ready was 0 meanwhile"
            assert states.begun[-1] == [*PHASES], "every part of the start is known"
            assert all(now[: len(before)] == before for before, now in pairwise(states.begun))
            took = [sample(states.page, PHASE, phase=phase, worker="0") for phase in PHASES]
            assert sum(took) <= time.monotonic() - began  # type: ignore[arg-type]
            size = sum(file.stat().st_size for file in models("llama").glob("*.safetensors"))
            assert _weights("file", states.page) == size
            assert 0.9 * size < _weights("read", states.page) < size
            print("parts of the start:", dict(zip(PHASES, took, strict=True)), states.begun)
            print(f"a second sidecar knew the state after {_later(options):.1f} s")
            server.send(signal.SIGTERM)
            server.wait()
            wait_for(lambda: states.seen[-1] == "gone", "it has gone", 60)
        wait_for(lambda: "v: the server is gone" in sidecar.text, "it is logged")
        states.stop()
        assert [state for state in states.seen if state != "loading"] == [
            *("expected", "ready", "gone")
        ]
