"""`kvscope load` as a process: exit status, signals, what it prints where."""

import errno
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope.load import Progress
from kvscope.load.progress import showing_progress
from tests.load.peer import Peer, serving
from tests.support.process import completed

pytestmark = pytest.mark.nightly

FULL = Path("/dev/full")
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import typer
from kvscope.cli.load import load
app = typer.Typer()
app.command()(load)
app()
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-c", PROGRAM, *arguments]


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return completed("load", *arguments)


@pytest.fixture
def free_url() -> Iterator[str]:
    """Nothing listens there: the port is bound and not served."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def test_report_and_json(peer: Peer) -> None:
    done = run_cli("chat", peer.url, "--num-requests", "8", "-o", "json")
    assert done.returncode == 0
    assert "8 successful, 0 failed" in done.stderr
    assert "prompt tokens from the prefix cache" in done.stderr
    report = json.loads(done.stdout)
    assert report["ok"] == 8
    assert report["cached_tokens"] > 0
    assert report["first_token"]["count"] == 8


def test_all_failed_is_1(peer: Peer) -> None:
    peer.fail_status = 500
    done = run_cli("rag", peer.url, "--num-requests", "3")
    assert done.returncode == 1
    assert "3 http_500" in done.stdout
    assert "first http_500: broken" in done.stdout


def test_cannot_start_is_2_and_one_line(peer: Peer, free_url: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": []}\n')
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    cases = [
        (["chat", free_url], f"{free_url}/v1/models: "),
        (["trace", str(trace), peer.url], "trace.jsonl:1: hash_ids: expected 2 ids"),
        (["trace", str(empty), peer.url], "no request in it"),
        (["trace", peer.url], "trace needs a FILE to replay"),
        (["chat", peer.url, "--max-tokens", "500"], "max_model_len 512 leaves 12 tokens"),
        (["chat", peer.url, "--concurrency", "0"], "--concurrency must be positive"),
        (["chat", peer.url, "--duration", "0"], "--duration must be positive"),
        (["chat", peer.url, "--sessions", "-1"], "--sessions must be positive, got -1"),
        (["chat", "http://127.0.0.1:99999"], "port 99999 is not between"),
        (["chat", "http://a..b"], "label"),
    ]
    for arguments, problem in cases:
        done = run_cli(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert done.stderr.startswith("kvscope: ")
        assert problem in done.stderr
        assert done.stderr.count("\n") == 1
    assert peer.bodies == []


class _Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "full")


def test_a_run_whose_progress_cannot_be_shown_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvscope.load.progress._LINE_EVERY_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr", _Full())
    progress = Progress(
        elapsed_seconds=1.0, share_done=None, in_flight=0, ok=0, failed=0, output_tokens=0
    )
    with showing_progress() as show:
        show(progress)
        show(progress)


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_json_is_printed_where_the_table_cannot_be(peer: Peer) -> None:
    arguments = ("rag", peer.url, "--limit", "3", "-o", "json")
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "kvscope", "load", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=full,
            timeout=60,
            check=False,
        )
    assert json.loads(done.stdout)["ok"] == 3
    assert done.returncode == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_the_report(peer: Peer, number: signal.Signals) -> None:
    peer.token_seconds = 0.02
    process = subprocess.Popen(
        command("rag", peer.url, "--concurrency", "4", "--max-tokens", "8"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while len(peer.bodies) < 12 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert " successful, " in stdout
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_a_server_that_goes_away_ends_the_run() -> None:
    with serving(Peer(token_seconds=0.01)) as peer:
        process = subprocess.Popen(
            command("rag", peer.url, "--duration", "50", "-o", "json"),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 30
        while len(peer.bodies) < 20 and time.monotonic() < deadline:
            time.sleep(0.05)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "the run was given up" in stderr
    assert " failed, " in stderr  # a line every few seconds, without a terminal
    report = json.loads(stdout)
    assert report["server_lost"]
    assert report["ok"] > 0
    assert report["failed"]["connection"] > 16


@pytest.mark.slow
def test_a_server_that_is_gone_when_the_run_ends_is_1() -> None:
    with serving(Peer(token_seconds=0.01)) as peer:
        process = subprocess.Popen(
            command("rag", peer.url, "--duration", "6", "-o", "json"),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 30
        while len(peer.bodies) < 20 and time.monotonic() < deadline:
            time.sleep(0.05)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "at the end of the run the server refused every connection" in stderr
    report = json.loads(stdout)
    assert report["server_lost"]
    assert report["ok"] > 0
    assert report["elapsed_seconds"] < 10


def test_workload_needs_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import kvscope.cli.load"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=dict(os.environ))
