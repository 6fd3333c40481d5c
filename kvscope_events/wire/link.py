"""A reader's connection to a publisher: it is always re-established, and reports what ended it.

ZMQ reconnects after a lost connection, but never after a peer has broken its protocol or sent a
message over the size limit; in these cases the socket is recreated.
"""

import os

import zmq

from kvscope_events.wire.endpoint import Endpoint
from kvscope_events.wire.frame import (
    ID_BYTES,
    MAGIC,
    MAX_MESSAGE_BYTES,
    DecodeErrorKind,
    RequestKind,
    answer_topic,
    pack_request,
)
from kvscope_events.wire.readers import NOT_A_PEER, Readers, next_event

HIGH_WATER = 64
"""Messages that may wait inside ZMQ."""
RENEW_NS = 1_000_000_000
"""Shortest time between two sockets, which bounds the cost of a peer that sends garbage."""
DEAD_NS = 200_000_000
"""A lost connection that ZMQ has not retried for this long is one that it will never retry."""

_MONITORED = (
    zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_DISCONNECTED
)


class Link:
    """Used by one thread only, from `receive` to `close`; both may raise ZMQError."""

    def __init__(self, endpoint: Endpoint, wake: int, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        """wake: an eventfd of the caller's, which ends the wait for a message."""
        self._endpoint = endpoint
        self._wake = wake
        self._max_bytes = max_bytes
        self._subscriber = os.urandom(ID_BYTES)
        self.answers = answer_topic(self._subscriber)
        """The topic of messages for this reader alone."""
        self._context = Readers.instance()
        self._made_ns = 0
        self._ended_ns: int | None = None
        self._open()

    @property
    def settled(self) -> bool:
        """Whether `faults` has nothing to check before the next message."""
        return self._ended_ns is None

    def receive(self, timeout_seconds: float) -> bytes | None:
        """The next message, or None when none came in time, or there is a fault, or a wake-up."""
        for place, _ in self._poller.poll(int(timeout_seconds * 1000)):
            if place == self._wake:
                os.eventfd_read(self._wake)
        try:
            return self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def ask(self, kind: RequestKind, session: bytes, seq: int) -> None:
        """Send a request. It may be lost on the way: the caller repeats it."""
        try:
            self._socket.send(pack_request(kind, self._subscriber, session, seq), zmq.NOBLOCK)
        except zmq.Again:
            return

    def faults(self, now_ns: int) -> list[DecodeErrorKind]:
        """Faults that ended the connection since the last call; a dead one is recreated."""
        found: list[DecodeErrorKind] = []
        while (event := next_event(self._monitor)) is not None:
            if event in NOT_A_PEER:
                found.append("malformed")
            elif event == zmq.EVENT_DISCONNECTED:
                self._ended_ns = now_ns
            elif event == zmq.EVENT_CONNECT_RETRIED:
                self._ended_ns = None
        if self._ended_ns is not None and now_ns - self._ended_ns > DEAD_NS:
            found.append("too_large")
            self._ended_ns = None
            self.renew(now_ns)
        return found

    def renew(self, now_ns: int) -> None:
        """Reconnect, at most once a second."""
        if now_ns - self._made_ns < RENEW_NS:
            return
        self.close()
        self._open(now_ns)

    def close(self) -> None:
        """May be repeated."""
        if not self._socket.closed:
            # Before closing its reader: ZMQ's own thread would wait forever to notify a monitor.
            self._socket.disable_monitor()
            self._socket.close(linger=0)
            self._monitor.close(linger=0)

    def _open(self, now_ns: int = 0) -> None:
        self._made_ns = now_ns
        topics = (MAGIC, self.answers)
        address = self._endpoint.address
        socket = _connect(self._context, address, topics, HIGH_WATER, self._max_bytes)
        try:
            self._monitor = Readers.monitor(socket, _MONITORED)
        except BaseException:
            socket.close(linger=0)
            raise
        self._socket = socket
        self._poller = zmq.Poller()
        for place in (self._socket, self._monitor, self._wake):
            self._poller.register(place, zmq.POLLIN)
        self._ended_ns = None


def _connect(
    context: "zmq.Context[zmq.Socket[bytes]]",
    address: str,
    topics: tuple[bytes, ...],
    high_water: int,
    max_bytes: int,
) -> "zmq.Socket[bytes]":
    """A reading socket that can also send requests; ZMQ reconnects it, with limits: see `Link`."""
    reader = context.socket(zmq.XSUB)
    try:
        reader.setsockopt(zmq.LINGER, 0)
        reader.setsockopt(zmq.SNDHWM, high_water)
        reader.setsockopt(zmq.RCVHWM, high_water)
        reader.setsockopt(zmq.MAXMSGSIZE, max_bytes)
        reader.setsockopt(zmq.RECONNECT_IVL, 100)
        reader.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)  # doubled from one attempt to the next
        reader.setsockopt(zmq.IPV6, int("[" in address))
        for topic in topics:
            reader.send(b"\x01" + topic)
        reader.connect(address)
    except BaseException:
        reader.close(linger=0)
        raise
    return reader
