"""Publisher and reader over real sockets: nothing lost in silence, whatever stops or restarts."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope_events.events import Hello, PoolSnapshot
from kvscope_events.wire.publisher import WirePublisher
from kvscope_events.wire.subscriber import SILENCE_NS, WireSubscriber
from tests.events.producers import Heard, Producer, collect, steps_of
from tests.support.waiting import wait_for

READER = """
import sys
from kvscope_events.wire.subscriber import WireSubscriber
reader = WireSubscriber(sys.argv[1])
while True:
    reader.wait(0.05)
    while (taken := reader.take()) is not None:
        print(taken.batch.seq, taken.lost, int(reader.state_known), reader.gaps, flush=True)
"""

ENGINE = """
import sys, time
from kvscope_events.wire.publisher import WirePublisher
from tests.events.producers import Producer
producer = Producer()
publisher = WirePublisher(producer.bus, sys.argv[1])
publisher.start()
producer.begin()
while True:
    producer.step()
    time.sleep(0.005)
"""


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/engine.sock"


@pytest.fixture
def producer(endpoint: str) -> Iterator[tuple[Producer, WirePublisher]]:
    made = Producer()
    publisher = WirePublisher(made.bus, endpoint)
    publisher.start()
    made.begin()
    yield made, publisher
    publisher.stop()


@pytest.fixture
def reader(endpoint: str) -> Iterator[WireSubscriber]:
    subscriber = WireSubscriber(endpoint)
    yield subscriber
    subscriber.close()


def has_step(number: int, taken: list[Heard]) -> bool:
    return any(number in steps_of(one.batch) for one in taken)


def test_a_reader_that_joins_late_gets_all_from_the_first_batch(
    producer: tuple[Producer, WirePublisher], reader: WireSubscriber
) -> None:
    producer[0].step(1000)
    taken = collect(reader, lambda taken: len(taken) == 1001)
    assert [one.batch.seq for one in taken] == list(range(1001))
    assert isinstance(taken[0].batch.events[0], Hello)
    wait_for(lambda: reader.state_known)  # its thread may not have seen yet that nothing is missing
    assert (reader.gaps, reader.batches_dropped) == (0, 0)


def test_a_reader_may_be_there_before_its_publisher(endpoint: str) -> None:
    early = WireSubscriber(endpoint)
    assert (early.up, early.state_known, early.last_message_ns) == (False, False, None)
    time.sleep(0.2)
    made = Producer()
    publisher = WirePublisher(made.bus, endpoint)
    publisher.start()
    made.begin()
    collect(early, lambda taken: len(taken) == 1)
    assert (early.up, early.state_known) == (True, True)
    early.close()
    publisher.stop()


def test_several_readers_are_served_each_on_its_own(
    producer: tuple[Producer, WirePublisher], endpoint: str
) -> None:
    producer[0].step(100)
    readers = [WireSubscriber(endpoint) for _ in range(3)]
    for one in readers:
        assert len(collect(one, lambda taken: len(taken) >= 101)) == 101
        one.close()


def test_a_publisher_of_a_bus_in_use_begins_with_a_snapshot(endpoint: str) -> None:
    made = Producer()
    made.begin()
    made.step(10)
    publisher = WirePublisher(made.bus, endpoint)
    publisher.start()
    late = WireSubscriber(endpoint)
    wait_for(lambda: (made.step(), late.wait(0.05))[1])
    taken = collect(late, lambda taken: len(taken) > 0)
    assert isinstance(taken[0].batch.events[-1], PoolSnapshot)
    assert late.state_known
    assert (late.gaps, late.batches_dropped) == (0, 0)
    late.close()
    publisher.stop()


def test_an_idle_publisher_stays_up_and_a_silent_one_is_unknown(endpoint: str) -> None:
    ahead_ns = 0
    watch = WireSubscriber(endpoint, clock_ns=lambda: time.monotonic_ns() + ahead_ns)
    made = Producer()
    publisher = WirePublisher(made.bus, endpoint)
    publisher.start()
    made.begin()
    collect(watch, lambda taken: len(taken) == 1)
    first_ns = watch.last_message_ns
    assert first_ns is not None
    wait_for(lambda: (watch.last_message_ns or 0) > first_ns)  # a heartbeat
    assert (watch.up, watch.state_known) == (True, True)
    ahead_ns = SILENCE_NS + 2_000_000_000
    assert (watch.up, watch.state_known) == (False, False)
    wait_for(lambda: watch.state_known)  # by the next heartbeat: nothing was missed
    watch.close()
    publisher.stop()


def test_a_drop_between_bus_and_publisher_is_a_gap_and_a_snapshot(endpoint: str) -> None:
    made = Producer()
    publisher = WirePublisher(made.bus, endpoint, queue_batches=4)
    publisher.start()
    made.begin()
    watch = WireSubscriber(endpoint)
    collect(watch, lambda taken: len(taken) == 1)
    made.step(100)
    wait_for(lambda: publisher.batches_lost > 0)
    wait_for(lambda: not watch.state_known)
    wait_for(lambda: (made.step(), watch.wait(0.05))[1])
    taken = collect(watch, lambda taken: len(taken) > 0)
    assert sum(one.lost for one in taken) == watch.batches_dropped >= publisher.batches_lost > 0
    assert watch.gaps >= 1
    assert watch.state_known
    watch.close()
    publisher.stop()


@pytest.mark.slow
@pytest.mark.parametrize("padding", [1_000, 40_000], ids=["within the ring", "beyond the ring"])
def test_a_reader_that_slept_catches_up(
    producer: tuple[Producer, WirePublisher], endpoint: str, padding: int
) -> None:
    steps = 2000
    command = [sys.executable, "-c", READER, endpoint]
    stopping = threading.Event()

    def run() -> None:
        for number in itertools.count():
            producer[0].step(padding=padding if number < steps else 0)
            if stopping.wait(0.001 if number < steps else 0.02):
                return

    engine = threading.Thread(target=run)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sleeper:
        assert sleeper.stdout is not None
        assert sleeper.stdout.readline() == "0 0 1 0\n"
        os.kill(sleeper.pid, signal.SIGSTOP)
        engine.start()
        wait_for(lambda: producer[0].steps > steps, seconds=30)
        os.kill(sleeper.pid, signal.SIGCONT)
        last, missing, known, gaps = 0, 0, 0, 0
        while last < steps + 50:
            seq, lost, known, gaps = map(int, sleeper.stdout.readline().split())
            assert seq == last + 1 + lost
            last, missing = seq, missing + lost
        stopping.set()
        sleeper.kill()
    engine.join()
    assert (missing == 0) == (padding == 1_000)
    assert (known, gaps > 0) == (1, True)


def test_a_publisher_that_restarts_with_another_model_is_a_new_session(
    endpoint: str, reader: WireSubscriber
) -> None:
    sessions = []
    for model_name in ("first", "second"):
        made = Producer(model_name)
        publisher = WirePublisher(made.bus, endpoint)
        publisher.start()
        made.begin()
        made.step(3)
        taken = collect(reader, lambda taken: len(taken) == 4)
        said = taken[0].batch.events[0]
        assert isinstance(said, Hello)
        assert said.model_name == model_name
        assert [one.batch.seq for one in taken] == [0, 1, 2, 3]
        sessions.append(taken[0].session)
        assert reader.state_known
        publisher.stop()
    assert sessions[0] != sessions[1]
    assert (reader.gaps, reader.batches_dropped) == (0, 0)


def test_a_publisher_that_was_killed_is_known_again_when_it_is_back(
    endpoint: str, reader: WireSubscriber
) -> None:
    sessions = set()
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", ENGINE, endpoint]) as engine:
            taken = collect(reader, lambda taken: len(taken) >= 20)
            assert reader.state_known
            engine.kill()
        taken += collect(reader, lambda _: True)  # what was under way
        assert [one.batch.seq for one in taken] == list(range(len(taken)))
        sessions |= {one.session for one in taken}
    assert len(sessions) == 2
    assert (reader.gaps, reader.batches_dropped) == (0, 0)


def test_a_reader_slower_than_its_queue_falls_back_on_the_ring(
    producer: tuple[Producer, WirePublisher], endpoint: str
) -> None:
    slow = WireSubscriber(endpoint, queue_bytes=50_000)
    for _ in range(20):
        producer[0].step(100)
        time.sleep(0.02)
    assert slow.queued_bytes <= 50_000
    taken = collect(slow, lambda taken: has_step(1999, taken), 30)
    assert [one.batch.seq for one in taken] == list(range(2001))
    assert (slow.gaps, slow.batches_dropped) == (0, 0)
    slow.close()


def test_stopping_sends_what_is_queued(endpoint: str) -> None:
    made = Producer()
    publisher = WirePublisher(made.bus, endpoint)
    publisher.start()
    watch = WireSubscriber(endpoint)
    made.begin()
    collect(watch, lambda taken: len(taken) == 1)
    made.step(50)
    publisher.stop()
    publisher.stop()
    assert len(collect(watch, lambda taken: has_step(49, taken))) == 50
    watch.close()
    watch.close()


def test_a_publisher_starts_once(producer: tuple[Producer, WirePublisher]) -> None:
    with pytest.raises(RuntimeError, match="has been started before"):
        producer[1].start()


def test_the_wire_runs_over_tcp() -> None:
    made = Producer()
    publisher = WirePublisher(made.bus, "tcp://127.0.0.1:0")
    publisher.start()
    made.begin()
    watch = WireSubscriber(publisher.address)
    assert len(collect(watch, lambda taken: len(taken) == 1)) == 1
    watch.close()
    publisher.stop()
