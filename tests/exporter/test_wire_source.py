"""A source over the wire: stamps arrivals with our clock, says what it knows, counts by kind."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kvscope_events.bus import EventBus
from kvscope_events.events import Batch, Hello
from kvscope_events.pid_space import pid_space
from kvscope_events.wire.endpoint import EndpointError
from kvscope_events.wire.publisher import WirePublisher
from kvscope_events.wire.subscriber import WireSubscriber
from kvscope_exporter.clock import Clock
from kvscope_exporter.sources.source import Source
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.target import Target
from tests.events.producers import SNAPSHOT, Producer, hello
from tests.exporter.page import value
from tests.support.waiting import wait_for

CLOCK = Clock(monotonic_ns=lambda: time.monotonic_ns() + 10**15)
"""Far from the producer's, as on another machine."""


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/engine.sock"


@pytest.fixture
def source(endpoint: str) -> Iterator[WireSubscriber]:
    made = WireSubscriber(endpoint, clock_ns=CLOCK.monotonic_ns)
    yield made
    made.close()


def drain(source: Source, count: int) -> list[Batch]:
    """Batches of an engine that loses none."""
    taken: list[Batch] = []
    deadline = time.monotonic() + 10
    while len(taken) < count:
        assert time.monotonic() < deadline, f"took {len(taken)} of {count}"
        source.wait(0.05)
        while (one := source.take()) is not None:
            batch, lost = one
            assert lost == 0
            taken.append(batch)
    return taken


def test_it_is_a_source_that_knows_nothing_before_its_first_batch(
    source: WireSubscriber, endpoint: str
) -> None:
    anonymous: Source = source
    assert (anonymous.kind, anonymous.endpoint, anonymous.session) == ("wire", endpoint, "")
    assert (anonymous.up, anonymous.state_known, anonymous.last_message_ns) == (False, False, None)
    assert (anonymous.batches_dropped, anonymous.gaps) == (0, 0)
    assert set(anonymous.decode_errors) == {
        *("malformed", "too_large", "contract", "unknown_event", "second_publisher")
    }
    assert not any(anonymous.decode_errors.values())
    assert anonymous.take() is None
    assert not anonymous.wait(0.01)


def test_arrivals_are_stamped_with_the_exporters_clock(
    source: WireSubscriber, endpoint: str
) -> None:
    producer = Producer()
    publisher = WirePublisher(producer.bus, endpoint)
    publisher.start()
    before_ns = CLOCK.monotonic_ns()
    producer.begin()
    producer.step(3)
    batches = drain(source, 4)
    after_ns = CLOCK.monotonic_ns()
    for batch in batches:
        assert before_ns < batch.arrived_ns < after_ns
        assert batch.time_ns < before_ns, "the producer's own clock"
        assert abs(batch.wall_ns - time.time_ns()) < 10**10
    assert source.last_message_ns is not None
    assert before_ns < source.last_message_ns < after_ns
    assert (source.up, source.state_known) == (True, True)
    publisher.stop()


def test_another_producer_on_the_endpoint_is_another_session(
    source: WireSubscriber, endpoint: str
) -> None:
    sessions = set()
    for model_name in ("first", "second"):
        producer = Producer(model_name)
        publisher = WirePublisher(producer.bus, endpoint)
        publisher.start()
        producer.begin()
        (batch,) = drain(source, 1)
        said = batch.events[0]
        assert isinstance(said, Hello)
        assert said.model_name == model_name
        sessions.add(source.session)
        assert source.state_known
        publisher.stop()
    assert len(sessions) == 2


def test_a_new_session_that_nobody_has_taken_yet_is_not_known(
    source: WireSubscriber, endpoint: str
) -> None:
    for waits in (False, True):
        producer = Producer()
        publisher = WirePublisher(producer.bus, endpoint)
        publisher.start()
        producer.begin()
        if waits:
            wait_for(lambda: source.wait(0.05))
            assert not source.state_known
        drain(source, 1)
        assert source.state_known
        publisher.stop()


def test_nothing_of_a_dead_engine_is_shown_while_the_next_one_only_beats(endpoint: str) -> None:
    source = WireSubscriber(endpoint, clock_ns=CLOCK.monotonic_ns)
    watched = Exporter([Target(source, compat=(), clock=CLOCK)], clock=CLOCK)

    def shown(family: str) -> float | None:
        return value(watched, family)

    watched.start()
    bus = EventBus()
    publisher = WirePublisher(bus, endpoint)
    publisher.start()
    bus.emit(hello(tells=("Hello", "PoolSnapshot")))
    bus.emit(SNAPSHOT)
    bus.flush()
    wait_for(lambda: shown("kvscope_source_state_known") == 1)
    assert shown("kvscope_engine_ready") == 1
    publisher.stop()
    following = WirePublisher(EventBus(), endpoint)  # it has not said who it is yet
    following.start()
    wait_for(lambda: source.superseded)
    assert shown("kvscope_source_up") == 1
    assert shown("kvscope_engine_ready") is None
    assert shown("kvscope_source_state_known") == 0
    following.stop()
    watched.stop()


@pytest.mark.parametrize("where", ["here", "in another container", "nobody knows"])
def test_memory_is_read_of_a_process_whose_pid_means_the_same_here(
    endpoint: str, where: str
) -> None:
    place = {"here": pid_space(), "in another container": "boot pid:[1]", "nobody knows": None}
    source = WireSubscriber(endpoint, clock_ns=CLOCK.monotonic_ns)
    watched = Exporter([Target(source, compat=(), clock=CLOCK)], clock=CLOCK)
    watched.start()
    bus = EventBus()
    publisher = WirePublisher(bus, endpoint)
    publisher.start()
    said = msgspec.structs.replace(hello(), pid=os.getpid(), pid_space=place[where])
    bus.emit(said)
    bus.flush()
    wait_for(lambda: value(watched, "kvscope_source_up", model_name="demo") == 1)
    shown = value(watched, "kvscope_host_memory_resident_bytes") is not None
    assert shown == (where == "here")
    publisher.stop()
    watched.stop()


def test_scrapes_and_the_fold_thread_take_in_turn(source: WireSubscriber, endpoint: str) -> None:
    producer = Producer()
    publisher = WirePublisher(producer.bus, endpoint)
    publisher.start()
    producer.begin()
    lock = threading.Lock()
    seqs: list[int] = []

    def take() -> None:
        while len(seqs) < 3001:
            source.wait(0.01)
            with lock:
                while (one := source.take()) is not None:
                    seqs.append(one[0].seq)

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        producer.step(100)
        time.sleep(0.005)
    for thread in threads:
        thread.join(20)
    assert seqs == list(range(3001))
    publisher.stop()


def test_an_endpoint_that_cannot_be_read_is_refused_at_once() -> None:
    with pytest.raises(EndpointError, match="not a loopback address"):
        WireSubscriber("tcp://10.0.0.1:5557", clock_ns=CLOCK.monotonic_ns)
