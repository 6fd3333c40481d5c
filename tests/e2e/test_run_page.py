"""`kvscope run` reads the page of the API server that its command starts, beside the events."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.pages import sample
from tests.support.process import ROOT, forked_kvscope
from tests.support.waiting import wait_for
from tests.vllm.server import free_port

pytestmark = [pytest.mark.slow, pytest.mark.waits, pytest.mark.timeout(120)]


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    """A command of that name."""
    command = tmp_path / "vllm"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.e2e.api_server "$@"\n')
    command.chmod(0o755)
    return command


@contextmanager
def observed(vllm: Path, *options: str) -> Iterator[str]:
    """The URL of the page, of a run whose server takes requests."""
    runs = f"/tmp/kvscope-test-{os.getpid()}"
    command = (str(vllm), "serve", "m", "--port", str(free_port()))
    arguments = ("run", "--port", "0", "--no-gpu", *options, "--", *command)
    with forked_kvscope(*arguments, KVSCOPE_RUN_DIR=runs) as process:
        try:
            url = process.find(r"metrics: (http://\S+)/metrics")
            process.find("(observed: vllm)")
            yield url
        finally:  # kvscope passes it on; killed, it would leave its command behind
            process.send(signal.SIGTERM)
            process.wait()


def page(url: str) -> str:
    return httpx.get(f"{url}/metrics", timeout=30).text


def first_tokens(url: str) -> float | None:
    return sample(page(url), "kvscope_time_to_first_token_seconds_count")


def test_latencies_and_ends_are_those_of_the_api_server(vllm: Path) -> None:
    with observed(vllm) as url:
        wait_for(lambda: first_tokens(url) == 4, "its page is read")
        text = page(url)
    assert sample(text, "kvscope_requests_finished_total", reason="stop") == 9
    assert sample(text, "kvscope_requests_finished_total", reason="abort") == 1
    assert sample(text, "kvscope_source_up", source="page") == 1
    assert sample(text, "kvscope_server_state", state="ready") == 1
    assert "\nvllm:" not in text, "its own page is beside ours"


def test_its_page_can_be_left_out(vllm: Path) -> None:
    with observed(vllm, "--url", "none") as url:
        wait_for(lambda: first_tokens(url) == 1, "its events are read")
        assert sample(page(url), "kvscope_source_up", source="page") is None


def test_a_url_that_is_none_is_an_error_before_the_command_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "kvscope", "run", "--port", "0", "--no-gpu"),
            *("--url", "localhost:8000", "--", "touch", str(tmp_path / "started")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "kvscope: --url: 'localhost:8000'" in done.stderr
    assert not (tmp_path / "started").exists()
