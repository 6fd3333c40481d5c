"""An engine that fails, hangs or is asked to end twice: its answers, its stacks, its exit
status."""

import concurrent.futures
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.e2e.test_serve import SMALL, Stream, url_of
from tests.support.faulty_cli import BREAKS, HANGS, RAISES
from tests.support.process import Process, forked_kvscope, kvscope
from tests.support.server import greedy
from tests.support.sse import chunks
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow
AT_ONCE_SECONDS = 6.0
"""On a busy machine; a drain has 30 s, and a stop waits 10 s for a step."""


@contextmanager
def faulty(*options: str) -> Iterator[tuple[Process, str]]:
    """A server with faults, and its URL."""
    arguments = ("engine", "serve", "--port", "0", "--no-gpu", *SMALL, *options)
    with forked_kvscope(*arguments, module="tests.support.faulty_cli") as process:
        yield process, url_of(process)


def complete(url: str, prompt: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", json=greedy(prompt, **body), timeout=60.0)


def test_a_failed_engine_answers_its_calls_and_leaves_if_it_is_told_to() -> None:
    with faulty("--exit-on-failure") as (process, url):
        right = complete(url, "abc").json()["choices"][0]["token_ids"]
        assert complete(url, f"{RAISES} me").status_code == 500, "its own fault alone"
        assert complete(url, "abc").json()["choices"][0]["token_ids"] == right
        stream = Stream(url, max_tokens=1000)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            whole = pool.submit(complete, url, "abc", max_tokens=1000)
            time.sleep(0.2)
            assert complete(url, f"{BREAKS} all").status_code == 500
            assert whole.result().status_code == 500
        stream.join()
        assert chunks(stream.lines)[-1]["error"]["code"] == 500
        assert process.wait() == 1
    assert "DeviceLostError: device lost" in process.text
    assert "the process ends, since its engine has failed" in process.text


@pytest.mark.nightly
def test_a_failed_engine_stays_for_a_look_if_it_is_not() -> None:
    with faulty() as (process, url):
        assert complete(url, f"{BREAKS} all").status_code == 500
        wait_for(lambda: httpx.get(f"{url}/health").status_code == 503)
        assert "device lost" in httpx.get(f"{url}/health").json()["reason"]
        assert complete(url, "abc").status_code == 503
        refused = re.compile(r'requests_rejected_total{.*reason="engine_dead"} 1\.0')
        wait_for(lambda: refused.search(httpx.get(f"{url}/metrics").text), "the page says so")
        process.send(signal.SIGTERM)
        assert process.wait() == 0


@pytest.mark.timed
def test_a_hung_step_is_no_reason_to_leave_and_two_signals_end_it() -> None:
    with (
        faulty("--exit-on-failure", "--stall-seconds", "0.5") as (process, url),
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        pool.submit(complete, url, f"{HANGS} on")
        wait_for(lambda: httpx.get(f"{url}/health").status_code == 503)
        assert "no step for" in httpx.get(f"{url}/health").json()["reason"]
        process.send(signal.SIGUSR1)
        process.find(r'File ".*faulty_cli.py", line \d+ in (execute)')
        process.find(r'File ".*step_loop.py", line \d+ in (_run)\n')
        assert process.popen.poll() is None
        process.send(signal.SIGTERM)
        process.find(r"(stopping)")
        began = time.monotonic()
        process.send(signal.SIGTERM)
        assert process.wait() == 0
        assert time.monotonic() - began < AT_ONCE_SECONDS


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGTERM, signal.SIGINT),
        (signal.SIGINT, signal.SIGTERM),
    ],
)
@pytest.mark.timed
def test_a_second_signal_ends_a_drain_at_once(
    first: signal.Signals, second: signal.Signals
) -> None:
    with forked_kvscope("engine", "serve", "--port", "0", "--no-gpu", *SMALL) as process:
        stream = Stream(url_of(process), max_tokens=1000)
        process.send(first)
        process.find(r"(stopping)")
        time.sleep(0.2)
        began = time.monotonic()
        process.send(second)
        assert process.wait() == 0
        assert time.monotonic() - began < AT_ONCE_SECONDS
        stream.join()
        assert len(stream.lines) < 1900, "it was cut short"
    assert "Traceback" not in process.text


SIDECAR = ("sidecar", "--no-gpu", "--events", "tcp://127.0.0.1:9", "--port", "0")


@pytest.mark.parametrize(
    "command",
    [SIDECAR, pytest.param(("demo", "--port", "0"), marks=pytest.mark.nightly)],
    ids=["sidecar", "demo"],
)
def test_sigusr1_shows_where_every_thread_is_and_changes_nothing(command: tuple[str, ...]) -> None:
    with forked_kvscope(*command) as process:
        process.find(r"(watching|serving)")

        def seen() -> bool:
            process.send(signal.SIGUSR1)
            time.sleep(0.2)
            return "(most recent call first)" in process.text and "run_until_end" in process.text

        wait_for(seen, "its main thread is seen in the server")
        process.send(signal.SIGTERM)
        assert process.wait() == 0


def test_a_process_that_dies_of_a_fatal_signal_says_where_it_was() -> None:
    with kvscope(*SIDECAR) as process:
        process.find(r"(watching)")
        process.send(signal.SIGSEGV)
        assert process.wait() == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in process.text
    assert "(most recent call first)" in process.text
