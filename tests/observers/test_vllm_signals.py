"""SIGUSR1 and an observed vLLM's processes: shown and not ended, and what they set up stays."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.repo.checkout import ROOT
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(60)

SERVES = """
import os, select, signal, sys, threading
if "own" in sys.argv:
    signal.signal(signal.SIGUSR1, lambda *_: print("its own", flush=True))
from kvscope_events.observers.vllm.signals import answer_signals
if "aside" in sys.argv:
    thread = threading.Thread(target=answer_signals)
    thread.start()
    thread.join()
else:
    answer_signals()
def spin(depth):
    return spin(depth - 1) + 1 if depth else sum(range(50))
def busy():
    while True:
        spin(40)
for _ in range(3):
    threading.Thread(target=busy, daemon=True).start()
print("ready", flush=True)
select.select([sys.stdin], [], [])
for _ in range(200):
    spin(40)
print("served", flush=True)
os._exit(0)
"""


def server(*how: str, stderr: int | None = subprocess.PIPE) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", SERVES, *how],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_bursts_of_sigusr1_show_stacks_and_the_process_serves_on(tmp_path: Path) -> None:
    log = tmp_path / "stderr"
    with log.open("w") as stderr, server(stderr=stderr.fileno()) as process:
        header = f"kvscope: the stacks of process {process.pid}\n"

        def is_shown(length: int, so_far: int) -> bool:
            """Ignored while the last stacks are being written, so it is called until they are."""
            for _ in range(length):
                process.send_signal(signal.SIGUSR1)
                time.sleep(0.01)
            return log.read_text().count(header) > so_far

        for burst in range(10):
            so_far = log.read_text().count(header)
            wait_for(partial(is_shown, 1 + burst % 5, so_far), "stacks after a burst")
        said, _ = process.communicate("\n", timeout=30)
    assert (process.returncode, said) == (0, "served\n")
    shown = log.read_text()
    assert "(MainThread) (most recent call first):" in shown
    assert shown.count(" in busy\n") >= 3


def test_a_handler_of_the_servers_own_stays() -> None:
    with server("own") as process:
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.3)
        said, shown = process.communicate("\n", timeout=30)
    assert (process.returncode, said, shown) == (0, "its own\nserved\n", "")


def test_beside_the_main_thread_nothing_is_set_up() -> None:
    with server("aside") as process:
        process.send_signal(signal.SIGUSR1)
        assert process.wait(30) == -signal.SIGUSR1


def test_a_log_that_is_no_longer_read_does_not_hold_the_server(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with server(stderr=writing) as process:
        for _ in range(200):  # more than the pipe holds
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.005)
        said, _ = process.communicate("\n", timeout=30)
    assert (process.returncode, said) == (0, "served\n")
    os.close(writing)
    os.close(reading)
