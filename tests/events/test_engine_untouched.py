"""Readers that never read, forks, ends without a stop: the engine's step pays a queue append."""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope_events.events import PoolSnapshot
from kvscope_events.wire.publisher import WirePublisher
from kvscope_events.wire.subscriber import WireSubscriber
from tests.events.producers import Producer, hello
from tests.support.waiting import wait_for

NEVER_READS = """
import select, socket, sys, time
path = sys.argv[1].removeprefix("ipc://")
while True:
    peer = socket.socket(socket.AF_UNIX)
    if peer.connect_ex(path) == 0:
        break
    time.sleep(0.05)
assert select.select([peer], [], [], 10)[0]
print("connected", flush=True)
time.sleep(600)
"""
PUBLISHES = """
import os, sys
from kvscope_events.bus import EventBus
from kvscope_events.events import FirstToken
from kvscope_events.wire.publisher import WirePublisher
bus = EventBus()
publisher = WirePublisher(bus, sys.argv[1])
publisher.start()
print("bound", flush=True)
sys.stdin.readline()
for number in range(3_000):
    for _ in range(300):
        bus.emit(FirstToken(number, 0))
    bus.flush()
"""


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/engine.sock"


@pytest.fixture
def dead_reader(endpoint: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that connects once there is a publisher, and never reads; then it is stopped."""
    command = [sys.executable, "-c", NEVER_READS, endpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def stop_when_connected(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "connected\n"
    os.kill(process.pid, signal.SIGSTOP)


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def step_seconds(producer: Producer, padding: int) -> float:
    """CPU time of this thread for a step, median."""
    costs = []
    for _ in range(1_000):
        began = time.thread_time()
        producer.step(padding=padding)
        costs.append(time.thread_time() - began)
    return statistics.median(costs)


@pytest.mark.slow
@pytest.mark.timed
def test_a_reader_that_never_reads_costs_the_engine_nothing(
    endpoint: str, dead_reader: "subprocess.Popen[str]"
) -> None:
    producer = Producer()
    alone = step_seconds(producer, padding=0)
    publisher = WirePublisher(producer.bus, endpoint, replay_bytes=8 << 20, queue_batches=256)
    publisher.start()
    stop_when_connected(dead_reader)
    before = resident_bytes()
    for _ in range(100):  # 200 MB in all
        producer.step(20, padding=100_000)
        time.sleep(0.02)
    assert publisher.ring_bytes <= 8 << 20
    # Ring, 8 MiB for the reader, and what the allocator keeps.
    assert resident_bytes() - before < 96 << 20
    assert step_seconds(producer, padding=0) < 3 * alone + 20e-6
    began = time.monotonic()
    publisher.stop()
    assert time.monotonic() - began < 1.5, "it waits 0.2 s for a reader, and no longer"


@pytest.mark.timed
def test_a_process_that_ends_without_a_stop_waits_for_nobody(
    endpoint: str, dead_reader: "subprocess.Popen[str]"
) -> None:
    command = [sys.executable, "-c", PUBLISHES, endpoint]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "bound\n"
        stop_when_connected(dead_reader)
        process.stdin.write("go\n")
        process.stdin.flush()
        began = time.monotonic()
        assert process.wait(20) == 0
        assert time.monotonic() - began < 10


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # a server may do so, too
def test_a_forked_child_neither_blocks_nor_takes_the_endpoint_away(endpoint: str) -> None:
    producer = Producer()
    publisher = WirePublisher(producer.bus, endpoint)
    publisher.start()
    producer.begin()
    code = os.fork()
    if code == 0:
        producer.step(10_000)  # its queue has a bound, and no reader takes
        publisher.stop()
        os._exit(0)
    deadline = time.monotonic() + 20
    while os.waitpid(code, os.WNOHANG) == (0, 0):
        assert time.monotonic() < deadline, "the child hangs"
        time.sleep(0.01)
    assert Path(endpoint.removeprefix("ipc://")).is_socket()
    producer.step()
    wait_for(lambda: publisher.ring_bytes > 0)
    publisher.stop()


def test_a_snapshot_too_large_to_send_is_not_made_again_and_again(
    endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = [bytes(64) for _ in range(2_200_000)]
    large = PoolSnapshot(len(names), 16, 0, 0, [0] * len(names), list(names), [])
    asked: list[int] = []
    producer = Producer()
    producer.bus.provide_snapshot(lambda: (asked.append(1), [hello(), large])[1])
    publisher = WirePublisher(producer.bus, endpoint)
    publisher.start()
    producer.bus.emit(hello())
    producer.bus.flush()
    reader = WireSubscriber(endpoint)
    wait_for(lambda: reader.take() is not None)
    publisher._subscription.request_snapshot()
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        producer.step()
        time.sleep(0.02)
    reader.close()
    publisher.stop()
    assert len(asked) == 1, "the engine's step makes them"
    assert caplog.text.count("larger than a message may be") == 1


def test_what_cannot_be_encoded_is_left_out_and_the_rest_goes_on(
    endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer()
    publisher = WirePublisher(producer.bus, endpoint)
    publisher.start()
    producer.begin()
    producer.bus.emit(object())  # type: ignore[arg-type]
    producer.bus.flush()
    producer.step()
    wait_for(lambda: publisher.batches_lost == 1)
    assert "batch 1 cannot be encoded and is left out" in caplog.text
    publisher.stop()
