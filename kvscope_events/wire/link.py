"""A reader's connection to a publisher: it is always re-established, and reports what ended it.

ZMQ reconnects after a lost connection, but never after a peer has broken its protocol or sent a
message over the size limit; in these cases the socket is created anew.
"""

import os
import struct

import zmq

from kvscope_events.wire.endpoint import Endpoint
from kvscope_events.wire.errors import DecodeErrorKind
from kvscope_events.wire.frame import (
    ID_BYTES,
    MAGIC,
    MAX_MESSAGE_BYTES,
    RequestKind,
    answer_topic,
    pack_request,
)
from kvscope_events.wire.sockets import connect

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
_NOT_A_PEER = (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
_EVENT = struct.Struct("=hi")


class Link:
    """Used by one thread only, from `receive` to `close`; both may raise ZMQError."""

    def __init__(self, endpoint: Endpoint, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._endpoint = endpoint
        self._max_bytes = max_bytes
        self._subscriber = os.urandom(ID_BYTES)
        self.answers = answer_topic(self._subscriber)
        """The topic of messages for this reader alone."""
        self._context = zmq.Context()
        self._made_ns = 0
        self._ended_ns: int | None = None
        try:
            self._open()
        except BaseException:
            self._context.destroy(linger=0)
            raise

    def receive(self, timeout_seconds: float) -> bytes | None:
        """The next message, or None when none came in time."""
        if not self._socket.poll(int(timeout_seconds * 1000)):
            return None
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
        """What has ended the connection since the last call; a dead one is created anew."""
        found: list[DecodeErrorKind] = []
        while self._monitor.poll(0):
            event, _ = _EVENT.unpack(self._monitor.recv_multipart()[0])
            if event in _NOT_A_PEER:
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
        """Connect anew, at most once a second."""
        if now_ns - self._made_ns < RENEW_NS:
            return
        self._close_sockets()
        self._open(now_ns)

    def close(self) -> None:
        """Also where making a socket has failed halfway."""
        self._context.destroy(linger=0)

    def _open(self, now_ns: int = 0) -> None:
        self._made_ns = now_ns
        topics = (MAGIC, self.answers)
        address = self._endpoint.address
        self._socket = connect(self._context, address, topics, HIGH_WATER, self._max_bytes)
        self._monitor = self._socket.get_monitor_socket(_MONITORED)
        self._ended_ns = None

    def _close_sockets(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
