"""A server behind a sidecar that hangs at its start, ends, is killed, or is retired: processes."""

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from kvscope_exporter.catalogue.server import SERVER_STATES
from tests.support.pages import sample
from tests.support.process import Process, forked_kvscope, kvscope
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.waits, pytest.mark.timeout(300)]


@dataclass
class Scene:
    """A folder as of a pod, a sidecar that watches it, and the processes of one server."""

    folder: Path
    sidecar: Process
    url: str
    stack: ExitStack

    def speaker(self, name: str, who: str) -> Process:
        endpoint = f"ipc://{self.folder}/{name}.sock"
        process = kvscope(endpoint, who, module="tests.support.speaker")
        speaker = self.stack.enter_context(process)
        speaker.find("(speaking)")
        return speaker

    def page(self) -> str:
        answer = httpx.get(f"{self.url}/scrape", params={"target": "llama"}, timeout=40)
        assert answer.status_code == 200
        return answer.text

    def value(self, name: str, **labels: str) -> float | None:
        return sample(self.page(), name, **labels)

    def state(self) -> str | None:
        page = self.page()
        found = {s: sample(page, "kvscope_server_state", state=s) for s in SERVER_STATES}
        if set(found.values()) == {None}:
            return None
        assert sorted(found.values(), key=str) == [0.0, 0.0, 0.0, 1.0], found
        return next(name for name, number in found.items() if number)

    def comes_to(self, state: str | None) -> None:
        wait_for(lambda: self.state() == state, f"the state is {state}", seconds=60)


@contextmanager
def scene(folder: Path, *options: str) -> Iterator[Scene]:
    """options: of the sidecar; without any it watches the folder."""
    sockets = folder / "sockets"
    sockets.mkdir(mode=0o700, exist_ok=True)
    options = options or ("--events", f"llama=ipc://{sockets}/*")
    with (
        ExitStack() as stack,
        forked_kvscope("sidecar", "--port", "0", "--no-gpu", *options) as sidecar,
    ):
        url = sidecar.find(r"(http://[\d.]+:\d+)/targets")
        wait_for(lambda: _answers(url), "the sidecar answers")
        yield Scene(sockets, sidecar, url, stack)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_start_shows_where_it_hangs(tmp_path: Path) -> None:
    refusing = f"http://127.0.0.1:{free_port()}"
    folder = tmp_path / "sockets"
    with scene(
        tmp_path, "--events", f"llama=ipc://{folder}/*", "--url", f"llama={refusing}"
    ) as pod:
        assert pod.state() == "expected", "before the import of vLLM nothing speaks"
        assert pod.value("kvscope_engine_ready") is None

        pod.speaker("engine-0-worker-0", "worker")
        pod.comes_to("loading")
        wait_for(lambda: pod.value("kvscope_engine_ready", model_name="llama", engine="0") == 0)
        assert pod.value("kvscope_source_up", source="wire") == 1, "weights load"

        engine = pod.speaker("engine-0", "loading")
        wait_for(lambda: pod.value("kvscope_source_up", endpoint=f"ipc://{folder}/engine-0.sock"))
        assert pod.state() == "loading"
        engine.send(signal.SIGUSR1)
        wait_for(lambda: pod.value("kvscope_engine_ready") == 1, "the engine core runs")
        assert pod.state() == "loading", "its API server does not answer"


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_ends_is_gone_until_it_is_started_again(
    tmp_path: Path, end: signal.Signals
) -> None:
    with scene(tmp_path) as pod:
        worker = pod.speaker("engine-0-worker-0", "worker")
        engine = pod.speaker("engine-0", "ready")
        pod.comes_to("ready")
        for process in (worker, engine):
            process.send(end)
            process.wait()
        assert (pod.folder / "engine-0.sock").exists() == (end == signal.SIGKILL)
        pod.comes_to("gone")
        for name in ("engine-0", "engine-0-worker-0"):
            endpoint = f"ipc://{pod.folder}/{name}.sock"
            up = pod.value("kvscope_source_up", endpoint=endpoint, model_name="llama", engine="0")
            assert up == 0
        assert pod.value("kvscope_engine_ready") is None
        wait_for(lambda: "the server is gone, after" in pod.sidecar.text, "it is logged")
        assert pod.sidecar.text.count("the server is gone") == 1
        pod.speaker("engine-0", "loading")
        pod.comes_to("loading")


def test_a_server_that_is_scaled_to_zero_on_purpose_is_retired(tmp_path: Path) -> None:
    with scene(tmp_path) as pod:
        engine = pod.speaker("engine-0", "ready")
        pod.comes_to("ready")
        with forked_kvscope("admin", "forget", pod.url) as early:
            assert early.wait() == 1
        assert "nothing to retire: the server is ready" in early.text
        engine.send(signal.SIGTERM)
        engine.wait()
        pod.comes_to("gone")
        with forked_kvscope("admin", "forget", pod.url, "--target", "llama") as retiring:
            assert retiring.wait() == 0, retiring.text
        assert f"retired ipc://{pod.folder}/engine-0.sock" in retiring.text
        page = pod.page()
        assert "kvscope_server_state" not in page
        assert "kvscope_source_up" not in page
        pod.speaker("engine-0", "ready")
        pod.comes_to("ready")


def test_a_server_that_is_taken_out_of_the_file_is_no_longer_shown(tmp_path: Path) -> None:
    file = tmp_path / "kvscope.yaml"
    llama = f"- {{name: llama, events: ['ipc://{tmp_path}/sockets/*']}}\n"
    other = f"- {{name: other, events: ['ipc://{tmp_path}/other.sock']}}\n"
    tmp_path.chmod(0o700)
    file.write_text(f"servers:\n{llama}{other}")
    with scene(tmp_path, "--config", str(file)) as pod:
        pod.comes_to("expected")
        file.write_text(f"servers:\n{other}")
        pod.sidecar.send(signal.SIGHUP)
        wait_for(lambda: "1 removed (llama)" in pod.sidecar.text, "it is read again")
        gone = httpx.get(f"{pod.url}/scrape", params={"target": "llama"}, timeout=10)
        assert gone.status_code == 404
