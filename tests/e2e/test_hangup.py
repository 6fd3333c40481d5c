"""SIGHUP of commands that serve: a service goes on, a command whose terminal is gone ends."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.process import ROOT, Process, started
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.nightly]

KVSCOPE = (sys.executable, "-m", "kvscope")
SMALL = ("--max-model-len", "2048", "--num-gpu-blocks-override", "256", "--no-gpu")
IGNORED = "SIGHUP is ignored"
COMMANDS = {
    "sidecar": ("sidecar", "--events", "red=tcp://127.0.0.1:1", "--no-gpu", "--port", "0"),
    "fleet": ("fleet", "--sidecar=http://127.0.0.1:1", "--port", "0"),
}


@pytest.fixture(autouse=True)
def sighup() -> Iterator[None]:
    """Not ignored: under nohup it is, and children inherit that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@contextmanager
def service(*arguments: str) -> Iterator[tuple[Process, str]]:
    """The command without a terminal, and its base URL, once it serves."""
    with started(["setsid", *KVSCOPE, *arguments]) as process:
        yield process, serving(process)


def serving(process: Process) -> str:
    url = process.find(r"(http://127\.0\.0\.1:\d{2,})")
    wait_for(lambda: _answers(url), "it serves", 120)
    return url


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/metrics", timeout=5).is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("command", COMMANDS)
def test_a_service_says_that_it_has_nothing_to_read_again(command: str) -> None:
    with service(*COMMANDS[command]) as (process, url):
        for number in range(1, 4):
            process.send(signal.SIGHUP)
            wait_for(lambda n=number: process.text.count(IGNORED) >= n, "it says so")
        assert httpx.get(f"{url}/metrics", timeout=30).is_success
        process.send(signal.SIGTERM)
        assert process.wait() == 0, process.text


def test_an_engine_that_is_a_service_serves_on() -> None:
    with (
        service("engine", "serve", *SMALL, "--port", "0") as (process, url),
        ThreadPoolExecutor(4) as pool,
    ):
        body = {"prompt": "once", "max_tokens": 200, "ignore_eos": True}
        wait_for(lambda: httpx.get(f"{url}/health", timeout=30).is_success, "the model", 120)
        asked = [
            pool.submit(httpx.post, f"{url}/v1/completions", json=body, timeout=120)
            for _ in range(4)
        ]
        process.send(signal.SIGHUP)
        process.find(f"({IGNORED})")
        assert [one.result().status_code for one in asked] == [200] * 4
        process.send(signal.SIGTERM)
        assert process.wait() == 0, process.text


def test_a_command_whose_terminal_is_closed_ends_in_order() -> None:
    ours, its = pty.openpty()
    with subprocess.Popen(
        ["setsid", "--ctty", *KVSCOPE, *COMMANDS["sidecar"]],
        cwd=ROOT,
        stdin=its,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as popen:
        os.close(its)
        assert popen.stdout is not None
        process = Process(popen, popen.stdout)
        try:
            serving(process)
            os.close(ours)
            assert process.wait() == 0, process.text
        finally:
            popen.kill()
    assert "the terminal is gone" in process.text


def test_what_nohup_started_does_not_notice(tmp_path: Path) -> None:
    with started(["nohup", *KVSCOPE, *COMMANDS["fleet"]]) as process:
        url = serving(process)
        process.send(signal.SIGHUP)
        assert httpx.get(f"{url}/metrics", timeout=30).is_success
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    assert "SIGHUP" not in process.text
