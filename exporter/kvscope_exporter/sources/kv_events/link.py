"""The sockets of one stream: its messages, its replay, and ZMQ's monitors of both.

ZMQ reconnects after a lost connection, but never after a peer has broken its protocol or sent a
message over the size limit; the socket is then recreated. After a failed request a replay gets a
new socket, so that no late answer is taken for that of the next request.
"""

from typing import Literal

import zmq

from kvscope_events.wire.endpoint import EndpointError
from kvscope_events.wire.wake import Wake
from kvscope_exporter.sources.kv_events.framing import MAX_FRAMES, request_from
from kvscope_exporter.sources.kv_events.sockets import NOT_A_PEER, Readers, Socket, next_event

HIGH_WATER = 256
"""Messages that may wait inside ZMQ; a server holds more of them, and its replay still more."""
RENEW_NS = 1_000_000_000
"""Shortest time between two sockets, which bounds the cost of a peer that sends garbage."""
DEAD_NS = 300_000_000
"""A lost connection that ZMQ has not retried for this long is one that it will never retry."""

LinkEvent = Literal["connected", "disconnected", "malformed", "too_large"]

_UP = (zmq.EVENT_HANDSHAKE_SUCCEEDED,)
_MONITORED = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_DISCONNECTED
)


class Link:
    """Used by one thread at a time, except `wake`. Construction raises EndpointError."""

    def __init__(
        self, endpoint: str, replay: str | None, topic: str, *, bind: bool, max_bytes: int
    ) -> None:
        self._endpoint = endpoint
        self._replay = replay
        self._topic = topic.encode()
        self._bind = bind
        self._max_bytes = max_bytes
        self.num_peers = 0
        """Publishers that are connected."""
        self._made_ns = 0
        self._ended_ns: int | None = None
        self._is_a_peer = True
        self._requests: Socket | None = None
        self._sockets: list[Socket] = []
        self._wake = Wake(endpoint)
        # With a context of its own it is possible to wait until the port is free again.
        self._context: zmq.Context[Socket] = zmq.Context() if bind else Readers.instance()
        self._poller = zmq.Poller()
        self._poller.register(self._wake.file, zmq.POLLIN)
        try:
            self._open(0)
            if replay is not None:
                self._connect_replay(replay)
        except zmq.ZMQError as error:
            self.close()
            raise EndpointError(
                endpoint, f"cannot be used: {error.strerror}", "use tcp://HOST:PORT or ipc:///PATH"
            ) from error

    def poll(self, timeout_seconds: float) -> None:
        """Wait until there is something to do, or the time is up."""
        for place, _ in self._poller.poll(max(0, int(timeout_seconds * 1000))):
            if place == self._wake.file:
                self._wake.clear()

    def wake(self) -> None:
        """End a `poll`, now or the next one; may be called by any thread."""
        self._wake.rouse()

    def receive(self) -> list[bytes] | None:
        """The frames of the next message of the stream; None: no message now."""
        return _receive(self._stream)

    def receive_answer(self) -> list[bytes] | None:
        """The frames of the next message of a replay; None: no message now."""
        return None if self._requests is None else _receive(self._requests)

    def ask(self, seq: int) -> None:
        """Request messages from this number on. It may be lost on the way: it is repeated."""
        if self._requests is None:
            assert self._replay is not None
            self._connect_replay(self._replay)
        assert self._requests is not None
        try:
            self._requests.send_multipart(request_from(seq), zmq.NOBLOCK)
        except zmq.Again:
            return

    def forget_answers(self) -> None:
        """Drop any further answers to a request."""
        if self._requests is not None:
            self._drop(self._requests)
            self._requests = None

    def events(self, now_ns: int) -> list[LinkEvent]:
        """Changes of the connections since the last call; a dead one is recreated."""
        found: list[LinkEvent] = []
        while (event := next_event(self._monitor)) is not None:
            if event in _UP:
                self._ended_ns = None
                self.num_peers += 1
                found.append("connected")
            elif event in NOT_A_PEER:
                self._is_a_peer = False
                self._ended_ns = None if self._bind else now_ns
                found.append("malformed")
            elif event == zmq.EVENT_DISCONNECTED:
                self._ended_ns = None if self._bind else now_ns
                if self.num_peers:
                    self.num_peers -= 1
                    found.append("disconnected")
                    if self.num_peers:  # one of several publishers is gone, but which?
                        found.append("connected")
            elif event == zmq.EVENT_CONNECT_RETRIED:
                self._ended_ns = None
        if self.is_ending and now_ns > max(self._ended_ns or 0, self._made_ns + RENEW_NS) + DEAD_NS:
            if self._is_a_peer:
                found.append("too_large")
            self._close_stream()
            self._open(now_ns)
        return found

    @property
    def is_ending(self) -> bool:
        """Whether a connection was lost and it is not yet clear whether ZMQ restores it."""
        return self._ended_ns is not None

    def close(self) -> None:
        """Also after creating a socket failed halfway; may be repeated."""
        self.num_peers = 0
        while self._sockets:  # a stream before its monitor
            self._drop(self._sockets[0])
        if self._bind:
            self._context.destroy(linger=0)
        self._wake.close()

    def _open(self, now_ns: int) -> None:
        self._made_ns = now_ns
        self._ended_ns = None
        self._is_a_peer = True
        self._stream = self._socket(zmq.SUB)
        self._stream.setsockopt(zmq.SUBSCRIBE, self._topic)
        self._monitor = self._kept(Readers.monitor(self._stream, _MONITORED))
        self._stream.setsockopt(zmq.IPV6, int("[" in self._endpoint))
        if self._bind:
            self._stream.bind(self._endpoint)
        else:
            self._stream.connect(self._endpoint)

    def _close_stream(self) -> None:
        self._drop(self._stream)
        self._drop(self._monitor)
        self.num_peers = 0

    def _connect_replay(self, replay: str) -> None:
        self._requests = self._socket(zmq.DEALER)
        self._requests.setsockopt(zmq.IPV6, int("[" in replay))
        self._requests.connect(replay)

    def _socket(self, kind: int) -> Socket:
        socket = self._kept(self._context.socket(kind))
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, HIGH_WATER)
        socket.setsockopt(zmq.MAXMSGSIZE, self._max_bytes)
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        # Nothing is sent while a server idles: only this detects that its host is gone.
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)
        socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 10)
        socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 3)
        return socket

    def _kept(self, socket: Socket) -> Socket:
        """Poll this socket as well, and close it with the others."""
        self._sockets.append(socket)
        self._poller.register(socket, zmq.POLLIN)
        return socket

    def _drop(self, socket: Socket) -> None:
        self._sockets.remove(socket)
        self._poller.unregister(socket)
        # Before closing its reader: ZMQ's own thread would wait forever to notify a monitor.
        socket.disable_monitor()
        socket.close(linger=0)


def _receive(socket: Socket) -> list[bytes] | None:
    """Keeps one frame more than any message has, so that a longer one is detected."""
    try:
        frames = [socket.recv(zmq.NOBLOCK)]
    except zmq.Again:
        return None
    while socket.getsockopt(zmq.RCVMORE):
        frame = socket.recv()
        if len(frames) <= MAX_FRAMES:
            frames.append(frame)
    return frames
