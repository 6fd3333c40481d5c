"""A real `kvscope engine serve` in a process of its own, with few descriptors, its log a file."""

import http.client
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.pages import sample
from tests.support.process import ROOT
from tests.support.waiting import wait_for
from tools.chaos.checkpoint import MAX_MODEL_LEN, make_trapped_checkpoint
from tools.chaos.frame import Figures, figures_of

DESCRIPTORS = 256
"""The most that the server may open: one attacker can use all of them up."""
START_SECONDS = 120.0
STOP_SECONDS = 30.0
"""After SIGTERM, with a drain of one second."""
_ANSWER_SECONDS = 60.0
_OPTIONS = (
    *("engine", "serve", "--port", "0", "--metrics-port", "0", "--served-model-name", "chaos"),
    *("--max-model-len", str(MAX_MODEL_LEN), "--num-gpu-blocks-override", "2048"),
    # A step stays short, so that the time of an answer is that of the server's other work.
    *("--max-num-seqs", "64", "--max-num-batched-tokens", "512", "--max-num-queued-reqs", "64"),
    # Attacks come from another address, and get no more than this of the engine.
    *("--max-client-requests", "6", "--max-client-tokens", "24000"),
    *("--drain-seconds", "1", "--no-gpu"),
)


@dataclass(frozen=True, slots=True)
class ChaosServer:
    """A server that answers on both ports."""

    pid: int
    api_port: int
    metrics_port: int
    log: Path

    def figures(self) -> Figures:
        return figures_of(self.pid)

    def log_lines(self) -> int:
        return self.log.read_bytes().count(b"\n")

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def ask(
        self, method: str, path: str, body: bytes | None = None, port: int | None = None
    ) -> tuple[int, str]:
        """Status and body. Raises OSError or HTTPException without an answer."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", port or self.api_port, timeout=_ANSWER_SECONDS
        )
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()

    def metric(self, name: str, **labels: str) -> float | None:
        """One sample of the page on the metrics port; None where it, or the page, is absent."""
        try:
            status, page = self.ask("GET", "/metrics", port=self.metrics_port)
        except (OSError, http.client.HTTPException):
            return None
        return sample(page, name, **labels) if status == 200 else None


@contextmanager
def chaos_server(folder: Path) -> Iterator[ChaosServer]:
    """The server, up; killed at the end if a SIGTERM has not ended it in time.

    folder: for its checkpoint and its log. Raises AssertionError if it does not start, or ends
    with another status than 0, or late.
    """
    checkpoint = make_trapped_checkpoint(folder / "checkpoint")
    log = folder / "server.log"
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("KVSCOPE_")}
    with (
        log.open("wb") as opened,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "kvscope", *_OPTIONS, "--model", str(checkpoint)],
            cwd=ROOT,
            stdout=opened,
            stderr=subprocess.STDOUT,
            env=inherited,
        ) as process,
    ):
        try:
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
            yield _started(process, log)
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_SECONDS) == 0, f"the server ended with {process.returncode}"
        finally:
            if process.poll() is None:
                process.kill()


def _started(process: "subprocess.Popen[bytes]", log: Path) -> ChaosServer:
    def read(pattern: str) -> int:
        match = re.search(pattern, log.read_text(errors="replace"))
        return int(match[1]) if match else 0

    wait_for(
        lambda: read(r"serving \S+ at \S+:(\d+)/v1") or process.poll() is not None,
        "the server starts",
        START_SECONDS,
    )
    assert process.poll() is None, log.read_text(errors="replace")
    return ChaosServer(
        pid=process.pid,
        api_port=read(r"serving \S+ at \S+:(\d+)/v1"),
        metrics_port=read(r"metrics: \S+:(\d+)/metrics"),
        log=log,
    )
