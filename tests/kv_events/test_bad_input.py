"""Foreign, broken, large and second publishers: counted, logged, survived."""

import logging
import os
import socket
import threading
import time
from pathlib import Path

import pytest
import zmq

from kvscope_events.throttle import MINUTE_NS
from kvscope_events.wire.endpoint import EndpointError
from kvscope_exporter.clock import Clock
from kvscope_exporter.faults import Faults
from kvscope_exporter.sources.kv_events import KvEventsSource, tracker
from kvscope_exporter.sources.kv_events.decoder import ERROR_KINDS
from kvscope_exporter.sources.kv_events.link import Link
from tests.kv_events.dialects import BY_NAME, Cleared, encode, one
from tests.kv_events.publisher import Publish, Publisher
from tests.kv_events.watching import watched
from tests.support.waiting import wait_for


def test_foreign_messages_are_counted_and_logged_once(
    tmp_path: Path, publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = publish(replay=False)
    with watched(tmp_path, replay=False) as there:
        publisher.joined()
        publisher.say(one(1))
        there.expect(1)
        for _ in range(20):
            publisher.raw([b"kv-events", b"not a number", b"x"])
            publisher.raw([b"kv-events"] * 9)
        publisher.say(one(2))
        there.expect(2)
        assert there.source.decode_errors["malformed"] == 40
        assert sum("malformed" in record.message for record in caplog.records) == 1


def test_a_message_that_cannot_be_read_leaves_the_cache_unknown(
    tmp_path: Path, publish: Publish
) -> None:
    publisher = publish()
    with watched(tmp_path) as there:
        there.expect(0)
        publisher.say(one(1))
        publisher.send(encode([1.0, [{"type": "BlockRemoved", "block_hashes": "all"}]]))
        publisher.say(one(2))
        there.expect(None, known=False)
        assert there.source.decode_errors["malformed"] == 1
        assert (there.source.gaps, there.source.batches_dropped) == (1, 1)
        publisher.send(encode([1.0, [{"type": "Of tomorrow"}, {"type": "AllBlocksCleared"}]]))
        there.expect(0)
        assert there.source.decode_errors["unknown_event"] == 1


def test_a_message_over_the_size_limit_is_survived(tmp_path: Path, publish: Publish) -> None:
    publisher = publish()
    with watched(tmp_path, max_frame_bytes=100_000) as there:
        there.expect(0)
        publisher.say(one(1))
        there.expect(1)
        publisher.send(bytes(200_000))
        wait_for(lambda: there.source.decode_errors["too_large"])
        # Again and again, until it has connected again: what is published before is lost.
        stored = "kvscope_kv_tier_stored_blocks_total"
        wait_for(lambda: publisher.say(one(2)) and (there.shown(stored, tier="device") or 0) > 1)
        assert not there.source.state_known
        assert there.source.batches_dropped > 0
        publisher.say(Cleared(), one(3))
        there.expect(1)


def test_what_came_back_after_a_message_over_the_size_limit_stays(
    tmp_path: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replay breaks off at that message each time: its history is not to be read again."""
    monkeypatch.setattr(tracker, "CONFIRM_NS", 1_000_000_000)
    publisher = publish()
    with watched(tmp_path, max_frame_bytes=100_000) as there:
        there.expect(0)
        publisher.say(one(1))
        there.expect(1)
        publisher.send(bytes(200_000))
        wait_for(lambda: there.source.decode_errors["too_large"])
        wait_for(lambda: publisher.say() and there.source.batches_dropped > 0)
        publisher.say(Cleared(), one(3))
        there.expect(1)
        session, lost = there.source.session, there.source.batches_dropped
        ends = time.monotonic() + 8 * tracker.CONFIRM_NS / 1e9
        while time.monotonic() < ends:
            publisher.say()
            time.sleep(0.05)
        assert (there.source.session, there.source.batches_dropped) == (session, lost)
        there.expect(1)


def test_a_100_megabyte_message_takes_no_memory(tmp_path: Path, publish: Publish) -> None:
    publisher = publish(replay=False)
    with watched(tmp_path, replay=False) as there:
        publisher.joined()
        publisher.say(one(1))
        there.expect(1)
        publisher.send(bytes(100 << 20))
        wait_for(lambda: there.source.decode_errors["too_large"])
        # Again and again, until it has connected again.
        wait_for(lambda: publisher.say(Cleared(), one(2)) and there.source.state_known)
        there.expect(1)


def test_a_server_of_another_protocol_is_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        source = KvEventsSource(endpoint, server="vllm", engine="0", clock=Clock())

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        wait_for(lambda: source.decode_errors["malformed"] > 1)
        assert not source.up
        assert source.decode_errors["too_large"] == 0
        source.close()
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_two_ranks_on_one_endpoint_are_seen(tmp_path: Path) -> None:
    with watched(tmp_path, replay=False, bind=True) as there:
        publishers = [Publisher(there.endpoint, bind=False) for _ in range(2)]
        for publisher in publishers:
            publisher.joined()
        first, second = publishers
        dialect = BY_NAME["vllm-0.32"]
        for number in range(3):
            first.send(dialect.message([one(number)], rank=0))
        wait_for(lambda: there.shown("kvscope_kv_tier_stored_blocks_total", tier="device") == 3)
        second.next_seq = 3
        second.send(dialect.message([one(9)], rank=1))
        wait_for(lambda: there.source.decode_errors["second_publisher"] == 1)
        wait_for(lambda: not there.source.state_known, "its content is unknown")
        for publisher in publishers:
            publisher.close()


@pytest.mark.parametrize(
    ("endpoint", "bind"),
    [
        ("http://127.0.0.1:1", False),
        ("tcp://*:5557", False),
        ("tcp://127.0.0.1", False),
        ("", True),
    ],
)
def test_an_endpoint_that_cannot_be_used_says_why(endpoint: str, bind: bool) -> None:
    with pytest.raises(EndpointError):
        KvEventsSource(endpoint, server="vllm", engine="0", clock=Clock(), bind=bind)


def test_an_address_in_use_is_an_error_at_once() -> None:
    context = zmq.Context()
    taken = context.socket(zmq.PUB)
    port = taken.bind_to_random_port("tcp://127.0.0.1")
    try:
        with pytest.raises(EndpointError, match="in use"):
            KvEventsSource(
                f"tcp://127.0.0.1:{port}", server="vllm", engine="0", clock=Clock(), bind=True
            )
    finally:
        context.destroy(linger=0)


def test_a_socket_that_fails_is_made_anew(
    tmp_path: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = publish()
    with watched(tmp_path) as there:
        there.expect(0)
        publisher.say(one(1))
        there.expect(1)
        real = Link.receive
        failures = iter([True])

        def receive(link: Link) -> list[bytes] | None:
            if next(failures, False):
                raise zmq.ZMQError(24)
            return real(link)

        monkeypatch.setattr(Link, "receive", receive)
        publisher.say(one(2))
        there.expect(2)


def test_a_source_is_closed_while_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = KvEventsSource(f"ipc://{tmp_path}/e", server="vllm", engine="0", clock=Clock())

    def fail(*_: object, **__: object) -> None:
        raise zmq.ZMQError(24)

    monkeypatch.setattr(Link, "receive", fail)
    monkeypatch.setattr(Link, "_open", fail)
    time.sleep(2.5)
    source.close()
    source.close()
    assert not source.up


def test_no_files_left_is_said_as_of_any_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "eventfd", fail)
    with pytest.raises(EndpointError, match="raise the limit of open files"):
        KvEventsSource("tcp://127.0.0.1:1", server="vllm", engine="0", clock=Clock())


def test_faults_are_logged_once_per_kind_and_minute(caplog: pytest.LogCaptureFixture) -> None:
    now_ns = 5
    faults = Faults("tcp://h:1", ERROR_KINDS, lambda: now_ns)
    for _ in range(3):
        faults.count("malformed", "bad")
        faults.count("too_large", "big", 2)
    assert len(caplog.records) == 2
    now_ns += MINUTE_NS
    faults.count("malformed", "bad")
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3
    assert faults.counts == {
        **{"malformed": 4, "too_large": 6, "unknown_event": 0, "second_publisher": 0}
    }
