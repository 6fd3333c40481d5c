"""`kvscope engine serve` as a process: ports, signals, exit status."""

import signal
import threading
import time
from typing import Any

import httpx
import pytest

from tests.support.process import Process, forked_kvscope, kvscope
from tests.support.server import greedy
from tests.support.sse import chunks, joined
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow
SMALL = ("--max-model-len", "1024", "--num-gpu-blocks-override", "128")


def url_of(process: Process) -> str:
    return process.find(r"serving \S+ at (\S+)/v1")


class Stream:
    """A streamed completion, read by a thread."""

    def __init__(self, url: str, max_tokens: int) -> None:
        self._url = url
        self._body = greedy("abc", max_tokens=max_tokens, stream=True)
        self.lines: list[str] = []
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        wait_for(lambda: len(self.lines) > 4, "the stream runs")

    def end(self) -> dict[str, Any]:
        self._thread.join(30)
        assert self.error is None, self.error
        return joined(chunks(self.lines))[0]

    def join(self) -> None:
        self._thread.join(30)

    def _read(self) -> None:
        try:
            with httpx.stream("POST", f"{self._url}/v1/completions", json=self._body) as response:
                for line in response.iter_lines():
                    self.lines.append(line)
        except httpx.HTTPError as error:
            self.error = error


def answers(url: str) -> bool:
    """A connection made while the port closes is refused, or reset."""
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):
        return False


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)]
)
def test_a_signal_drains(number: signal.Signals) -> None:
    with kvscope("engine", "serve", "--port", "0", "--metrics-port", "0", *SMALL) as process:
        url = url_of(process)
        metrics_url = process.find(r"metrics: (\S+)")
        page = httpx.get(metrics_url).text
        assert "kvscope_kv_blocks" in page
        assert 'http_requests_total{handler="/v1/completions",method="POST",status="5xx"} 0' in page
        assert httpx.get(f"{url}/metrics").status_code == 200
        stream = Stream(url, max_tokens=800)
        process.send(number)
        process.find(r"(stopping)")
        wait_for(lambda: not answers(url), "it takes no new connections")
        choice = stream.end()
        assert (len(choice["token_ids"]), choice["finish_reason"]) == (800, "length")
        assert process.wait() == 0
    assert "Traceback" not in process.text


def test_a_short_drain_ends_streams_with_abort_and_no_stats_is_404() -> None:
    environment = {
        "KVSCOPE_ENGINE_SERVE_DRAIN_SECONDS": "0.1",
        "KVSCOPE_ENGINE_SERVE_DISABLE_LOG_STATS": "1",
    }
    with forked_kvscope("engine", "serve", "--port", "0", *SMALL, **environment) as process:
        url = url_of(process)
        assert httpx.get(f"{url}/metrics").status_code == 404
        assert process.find(r"metrics: (\S+)") == "none"
        stream = Stream(url, max_tokens=1000)
        process.send(signal.SIGTERM)
        assert stream.end()["finish_reason"] == "abort"
        assert process.wait() == 0
    assert "Traceback" not in process.text


@pytest.mark.timed
def test_a_second_ctrl_c_does_not_wait() -> None:
    with forked_kvscope("engine", "serve", "--port", "0", *SMALL) as process:
        stream = Stream(url_of(process), max_tokens=1000)
        process.send(signal.SIGINT)
        process.find(r"(stopping)")
        time.sleep(0.2)
        began = time.monotonic()
        process.send(signal.SIGINT)
        process.wait()
        assert time.monotonic() - began < 10, "far less than the 30 s of a drain"
        stream.join()
        assert len(stream.lines) < 1900
    assert "Traceback" not in process.text
