"""A reader's reaction to a hostile peer: one line in the log, a count by kind, state unknown."""

import contextlib
import logging
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvscope_events.events import CONTRACT_VERSION, EngineEvent, FirstToken, RequestArrived
from kvscope_events.wire.frame import (
    DECODE_ERROR_KINDS,
    MAGIC,
    REQUEST_BYTES,
    FrameKind,
    RequestKind,
    pack_header,
    pack_request,
)
from kvscope_events.wire.message import MessageKind, prefix
from kvscope_events.wire.publisher import WirePublisher
from kvscope_events.wire.subscriber import WireSubscriber
from tests.events.producers import SNAPSHOT, Producer, collect, frame, hello
from tests.support.waiting import wait_for

SESSION = b"hostile!"
BASE: list[EngineEvent] = [hello(), SNAPSHOT]


class Peer:
    """A socket that sends whatever a test wants to all that connect; it answers no request."""

    def __init__(self, endpoint: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(endpoint.removeprefix("ipc://"))
        self._listener.listen()
        self._listener.settimeout(10)
        self._readers: list[socket.socket] = []

    def await_reader(self) -> None:
        reader, _ = self._listener.accept()
        assert len(reader.recv(REQUEST_BYTES)) == REQUEST_BYTES, "it joins"
        self._readers.append(reader)

    def send(self, message: bytes) -> None:
        self.send_raw(prefix(MessageKind.STREAM, len(message)) + message)

    def send_raw(self, sent: bytes) -> None:
        for reader in self._readers:
            with contextlib.suppress(ConnectionError):  # one that closed what it was sent before
                reader.sendall(sent)

    def close(self) -> None:
        for opened in (self._listener, *self._readers):
            opened.close()


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/engine.sock"


@pytest.fixture
def peer(endpoint: str) -> Iterator[Peer]:
    made = Peer(endpoint)
    yield made
    made.close()


@pytest.fixture
def reader(endpoint: str, peer: Peer) -> Iterator[WireSubscriber]:
    subscriber = WireSubscriber(endpoint)
    peer.await_reader()
    yield subscriber
    subscriber.close()


def begin(peer: Peer, reader: WireSubscriber) -> None:
    peer.send(frame(BASE, 0, SESSION))
    collect(reader, lambda taken: len(taken) == 1)
    assert reader.state_known


def seqs(reader: WireSubscriber, until: Callable[[list[int]], bool]) -> list[int]:
    taken = collect(reader, lambda taken: until([one.batch.seq for one in taken]))
    return [one.batch.seq for one in taken]


CUT_SHORT = frame([FirstToken(1, 1)], 1, SESSION)[:-1]
THEIR_CONTRACT = MAGIC + (CONTRACT_VERSION + 1).to_bytes(2, "little") + bytes(40)
TOO_LONG = pack_header(FrameKind.BATCH, 0, SESSION, 1, 2**32 - 1)


@pytest.mark.parametrize(
    ("message", "kind", "problem"),
    [
        (MAGIC, "malformed", "a header cut short at 4 bytes"),
        (MAGIC + b"\x01\x00 garbage", "malformed", "a header cut short"),
        (CUT_SHORT, "malformed", "cut short"),
        (THEIR_CONTRACT, "contract", "the peer speaks contract 2, this reader 1"),
        (TOO_LONG, "too_large", "a payload of 4294967295 bytes"),
    ],
    ids=["magic alone", "garbage", "cut short", "another contract", "a length over the limit"],
)
def test_a_bad_message_is_counted_and_named_once(
    peer: Peer,
    reader: WireSubscriber,
    caplog: pytest.LogCaptureFixture,
    message: bytes,
    kind: str,
    problem: str,
) -> None:
    assert reader.decode_errors == dict.fromkeys(DECODE_ERROR_KINDS, 0)
    begin(peer, reader)
    for _ in range(3):
        peer.send(message)
    wait_for(lambda: reader.decode_errors[kind] == 3)
    assert sum(reader.decode_errors.values()) == 3
    (record,) = caplog.records
    assert (record.levelno, problem in record.getMessage()) == (logging.WARNING, True)
    peer.send(frame([FirstToken(2, 1)], 1, SESSION))
    assert seqs(reader, lambda seqs: len(seqs) == 1) == [1], "the next good one is read"


def test_a_batch_that_cannot_be_read_is_a_loss_until_the_state_comes(
    peer: Peer, reader: WireSubscriber
) -> None:
    begin(peer, reader)
    peer.send(pack_header(FrameKind.BATCH, 0, SESSION, 1, 7) + b"garbage")
    peer.send(frame([FirstToken(2, 1)], 2, SESSION))
    wait_for(lambda: (reader.take(), reader.decode_errors["malformed"])[1] == 1)
    assert not reader.state_known
    peer.send(frame([FirstToken(3, 1), *BASE], 3, SESSION))
    taken = collect(reader, lambda taken: len(taken) == 1)
    assert (taken[0].batch.seq, taken[0].lost) == (3, 2)
    assert reader.state_known
    assert (reader.gaps, reader.batches_dropped) == (1, 2)


def test_a_batch_that_cannot_be_read_after_the_end_touches_no_file_of_others(
    peer: Peer, reader: WireSubscriber
) -> None:
    begin(peer, reader)
    peer.send(pack_header(FrameKind.BATCH, 0, SESSION, 1, 7) + b"garbage")
    wait_for(lambda: reader.queued_bytes > 0)
    reader.close()
    others = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(4)]  # one takes the number
    assert reader.take() is None
    for other in others:
        with pytest.raises(BlockingIOError):
            os.eventfd_read(other)
        os.close(other)
    assert reader.decode_errors["malformed"] == 1


def test_what_could_not_be_read_stays_lost_when_the_publisher_ends(
    peer: Peer, reader: WireSubscriber
) -> None:
    begin(peer, reader)
    peer.send(pack_header(FrameKind.BATCH, 0, SESSION, 1, 7) + b"garbage")
    peer.send(frame([FirstToken(2, 1)], 2, SESSION))
    wait_for(lambda: (reader.take(), reader.batches_dropped)[1] == 2)
    peer.send(frame(BASE, 0, b"another!"))
    (taken,) = collect(reader, lambda taken: len(taken) == 1)
    assert taken.lost == 0, "the new publisher's stream is whole"
    assert (reader.gaps, reader.batches_dropped) == (1, 2)


def test_two_publishers_on_one_endpoint_are_detected(peer: Peer, reader: WireSubscriber) -> None:
    begin(peer, reader)
    for seq in range(1, 4):
        peer.send(frame(BASE, seq - 1, b"another!"))
        peer.send(frame([FirstToken(seq, 1)], seq, SESSION))
    taken = collect(reader, lambda taken: len(taken) == 3)
    assert {one.session for one in taken} == {b"another!".hex()}
    wait_for(lambda: reader.decode_errors["second_publisher"] == 3)


def test_events_of_a_newer_producer_are_left_out(peer: Peer, reader: WireSubscriber) -> None:
    begin(peer, reader)
    payload = b"\x93\x01\x00\x92\x92\xa7Unheard\x01\x93\xaaFirstToken\x07\x01"
    peer.send(pack_header(FrameKind.BATCH, 0, SESSION, 1, len(payload)) + payload)
    taken = collect(reader, lambda taken: len(taken) == 1)
    assert taken[0].batch.events == [FirstToken(7, 1)]
    assert reader.decode_errors["unknown_event"] == 1
    assert reader.state_known


@pytest.mark.parametrize(
    ("sent", "kind", "problem"),
    [
        (prefix(MessageKind.STREAM, 140_000_000), "too_large", "sent a message of 140000000 bytes"),
        (b"\xff" + bytes(8) + b"\x01\x7f", "malformed", "the peer is not a publisher"),  # ZMQ's
        (b"\r", "malformed", "the peer is not a publisher"),
    ],
    ids=["too long", "another protocol", "one byte"],
)
def test_a_peer_that_breaks_the_protocol_is_left_and_the_next_one_read(
    peer: Peer,
    reader: WireSubscriber,
    caplog: pytest.LogCaptureFixture,
    sent: bytes,
    kind: str,
    problem: str,
) -> None:
    begin(peer, reader)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peer.send_raw(sent)
    wait_for(lambda: reader.decode_errors[kind] == 1)
    wait_for(lambda: problem in caplog.text)
    peer.await_reader()
    peer.send(frame([FirstToken(1, 1)], 1, SESSION))
    assert seqs(reader, lambda seqs: len(seqs) == 1) == [1]
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 20_000, "memory for what has come, not for what was announced"


def test_a_message_in_small_pieces_is_one_message(peer: Peer, reader: WireSubscriber) -> None:
    begin(peer, reader)
    message = frame([FirstToken(1, 1)], 1, SESSION)
    for byte in prefix(MessageKind.STREAM, len(message)) + message:
        peer.send_raw(bytes([byte]))
    assert seqs(reader, lambda seqs: len(seqs) == 1) == [1]
    assert sum(reader.decode_errors.values()) == 0


def test_a_message_larger_than_the_buffer_is_read(peer: Peer, reader: WireSubscriber) -> None:
    begin(peer, reader)
    for seq in (1, 2):
        peer.send(frame([RequestArrived(seq, 1, 1, tenant="x" * 3_000_000)], seq, SESSION))
    assert seqs(reader, lambda seqs: len(seqs) == 2) == [1, 2]


def test_a_server_of_another_protocol_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reader = WireSubscriber(f"tcp://127.0.0.1:{server.getsockname()[1]}")

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
        wait_for(lambda: reader.decode_errors["malformed"] > 0)
        assert not reader.up
        reader.close()
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_reader_that_had_no_file_descriptors_left_reads_again(
    endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        os.close(taken.pop())  # one is left, for what wakes the reader
        reader = WireSubscriber(endpoint)
        wait_for(lambda: "cannot be read now: Too many open files" in caplog.text)
    finally:
        for file in taken:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    made = Producer()
    publisher = WirePublisher(made.bus, endpoint)
    publisher.start()
    made.begin()
    wait_for(lambda: reader.take() is not None)
    reader.close()
    publisher.stop()


def test_a_peer_that_sends_no_requests_is_disconnected_and_readers_are_served(
    tmp_path: Path,
) -> None:
    made = Producer()
    publisher = WirePublisher(made.bus, f"ipc://{tmp_path}/engine.sock")
    publisher.start()
    made.begin()
    for sent in (b"garbage" * 10, bytes(1_000_000), b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        with socket.socket(socket.AF_UNIX) as hostile:
            hostile.settimeout(10)
            hostile.connect(f"{tmp_path}/engine.sock")
            with contextlib.suppress(ConnectionError):
                hostile.sendall(sent)
                while hostile.recv(1024):
                    pass
    watch = WireSubscriber(publisher.address)
    made.step(10)
    assert seqs(watch, lambda seqs: 10 in seqs) == list(range(11))
    watch.close()
    publisher.stop()


def test_a_flood_of_requests_is_ignored(tmp_path: Path) -> None:
    made = Producer()
    publisher = WirePublisher(made.bus, f"ipc://{tmp_path}/engine.sock")
    publisher.start()
    made.begin()
    request = pack_request(RequestKind.REPLAY, b"no such!", 0)
    with socket.socket(socket.AF_UNIX) as hostile:
        hostile.setblocking(False)
        hostile.connect(f"{tmp_path}/engine.sock")

        def flood() -> bool:
            with contextlib.suppress(BlockingIOError):
                hostile.send(request)
            return publisher.requests_ignored > 100

        wait_for(flood)
        watch = WireSubscriber(publisher.address)
        made.step(10)
        assert seqs(watch, lambda seqs: 10 in seqs) == list(range(11))
        watch.close()
    publisher.stop()
