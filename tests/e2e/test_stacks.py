"""`kvscope observer stacks` as a process: who answers, who cannot, and who is left alone."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvscope_events.bus import EventBus
from kvscope_events.wire.publisher import WirePublisher
from tests.support.process import Process, forked_kvscope, started

pytestmark = [pytest.mark.slow, pytest.mark.waits, pytest.mark.timeout(120), pytest.mark.nightly]

PUBLISHES = """
import re, sys, threading, time
from kvscope_events.bus import EventBus
from kvscope_events.stacks import answer_held_signal
from kvscope_events.wire.publisher import WirePublisher
if "deaf" not in sys.argv:
    answer_held_signal()
WirePublisher(EventBus(), sys.argv[1]).start()
print("it is", "ready", flush=True)
if "held" in sys.argv:
    re.match("(a*)*b", "a" * 60)
time.sleep(600)
"""


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """The path of a socket is short."""
    with tempfile.TemporaryDirectory(prefix="kvscope-") as name:
        yield Path(name)


@contextmanager
def publisher(socket: Path, *how: str) -> Iterator[Process]:
    """A process of its own; `held`: native code has its interpreter for ever."""
    with started([sys.executable, "-c", PUBLISHES, f"ipc://{socket}", *how]) as process:
        process.find("(it is ready)")
        yield process


def stacks(*arguments: str) -> tuple[int, str]:
    with forked_kvscope("observer", "stacks", *arguments) as process:
        return process.wait(60), process.text


@pytest.mark.parametrize(
    "place", ["ipc://{}/engine-0.sock", "ipc://{}/*", "{}", "{}/engine-0.sock"]
)
def test_every_name_of_a_place_means_its_processes(short_folder: Path, place: str) -> None:
    this = WirePublisher(EventBus(), f"ipc://{short_folder}/engine-0.sock")
    this.start()
    try:
        status, text = stacks(place.format(short_folder))
    finally:
        this.stop()
    assert status == 0, text
    assert f"== ipc://{short_folder}/engine-0.sock: process {os.getpid()}\n" in text
    assert "in test_every_name_of_a_place_means_its_processes" in text
    assert "(MainThread) (most recent call first):" in text


def test_one_process_behind_two_sockets_is_shown_once(short_folder: Path) -> None:
    both = [
        WirePublisher(EventBus(), f"ipc://{short_folder}/{name}.sock")
        for name in ("core", "worker")
    ]
    for one in both:
        one.start()
    try:
        status, text = stacks(str(short_folder))
    finally:
        for one in both:
            one.stop()
    assert status == 0, text
    assert text.count("(MainThread)") == 1
    assert f"worker.sock: process {os.getpid()}, as at ipc://{short_folder}/core.sock" in text


def test_a_process_whose_interpreter_is_held_writes_its_stacks_only_if_asked_to(
    short_folder: Path,
) -> None:
    socket = short_folder / "held.sock"
    with publisher(socket, "held") as process:
        status, text = stacks(str(socket), "--timeout", "2")
        assert status == 1
        assert f"process {process.popen.pid} did not answer in 2 s: native code holds" in text
        assert "--held" in text
        assert text.count("\n") == 1, text
        assert "most recent call first" not in process.text, "nothing was sent to it"
        status, text = stacks(str(socket), "--timeout", "2", "--held")
        assert status == 1
        assert f"process {process.popen.pid} was asked to write them to its own log" in text
        process.find(r'File ".*re/__init__.py", line \d+ in (match)')
        assert process.popen.poll() is None


def test_no_signal_is_sent_to_a_process_that_it_would_end(short_folder: Path) -> None:
    socket = short_folder / "deaf.sock"
    with publisher(socket, "held", "deaf") as process:
        status, text = stacks(str(socket), "--timeout", "1", "--held")
        assert status == 1
        assert "its observer is older than this command" in text
        assert process.popen.poll() is None
        process.send(signal.SIGSTOP)
        time.sleep(0.1)
        assert "is stopped (SIGSTOP)" in stacks(str(socket), "--timeout", "1", "--held")[1]
        process.send(signal.SIGCONT)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("ipc://{}/none.sock", "there is no socket"),
        ("{}", "there is no socket"),
        ("http://127.0.0.1:8010", "a page of metrics does not answer this"),
        ("tcp://192.0.2.1:5557", "not a loopback address"),
        ("tcp://127.0.0.1:9", "no stacks came in 1 s"),
    ],
)
def test_a_place_without_an_answer_is_one_line(short_folder: Path, place: str, says: str) -> None:
    status, text = stacks(place.format(short_folder), "--timeout", "1")
    assert status in (1, 2)
    assert says in text
    assert text.count("\n") == 1, text
