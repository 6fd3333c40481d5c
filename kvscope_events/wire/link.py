"""A reader's connection to a publisher: it is always re-established, and reports what ended it."""

import errno
import select
import socket
import time

from kvscope_events.wire.endpoint import Endpoint
from kvscope_events.wire.frame import (
    ID_BYTES,
    MAX_MESSAGE_BYTES,
    DecodeErrorKind,
    FrameError,
    RequestKind,
    pack_request,
)
from kvscope_events.wire.message import Inbox, Message
from kvscope_events.wire.wake import Wake

RETRY_SECONDS = (0.1, 1.0)
"""Pause after a connection that failed: the first, doubled each time up to the last."""
RENEW_SECONDS = 1.0
"""Shortest time between two connections to a peer that breaks the protocol."""
CONNECT_SECONDS = 1.0
"""Longest wait for a peer on another host to accept."""
_NO_SESSION = bytes(ID_BYTES)
_OWN_TROUBLE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Link:
    """Used by one thread only, from `receive` to `close`; `receive` may raise OSError."""

    def __init__(self, endpoint: Endpoint, wake: Wake, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        """wake: ends the wait for a message."""
        self._endpoint = endpoint
        self._wake = wake
        self._max_bytes = max_bytes
        self._inbox = Inbox(max_bytes)
        self._socket: socket.socket | None = None
        self._connected_at = -RENEW_SECONDS
        self._retry_at = 0.0
        self._pause = RETRY_SECONDS[0]
        self._faults: list[tuple[DecodeErrorKind, str]] = []

    def receive(self, timeout_seconds: float) -> Message | None:
        """The next message; None: none came in time, or the connection changed, or a wake-up.

        OSError: this process is in trouble, not the peer.
        """
        now = time.monotonic()
        if self._socket is None and now >= self._retry_at:
            self._connect(now)
        try:
            message = self._inbox.take()
            if message is None and self._wait(now, timeout_seconds):
                self._read()
                message = self._inbox.take()
        except FrameError as error:
            self._faults.append((error.kind, error.problem))
            self._disconnect(self._connected_at + RENEW_SECONDS)
            return None
        return message

    def ask(self, kind: RequestKind, session: bytes, seq: int) -> None:
        """Send a request. It may be lost on the way: the caller repeats it."""
        if self._socket is None:
            return
        request = pack_request(kind, session, seq)
        try:
            sent = self._socket.send(request)
        except BlockingIOError:  # the publisher reads no requests now
            return
        except OSError:
            sent = 0
        if sent < len(request):  # what follows half a request would not be one
            self._disconnect(time.monotonic())

    def faults(self) -> list[tuple[DecodeErrorKind, str]]:
        """Faults that ended connections since the last call: the kind, and the problem in words."""
        found, self._faults = self._faults, []
        return found

    def renew(self) -> None:
        """Reconnect, at most once a second."""
        self._disconnect(self._connected_at + RENEW_SECONDS)

    def close(self) -> None:
        """May be repeated."""
        self._disconnect(0.0)

    def _connect(self, now: float) -> None:
        try:
            connection = _connection(self._endpoint)
        except OSError as error:  # no publisher there, or too many wait for it
            if error.errno in _OWN_TROUBLE:
                raise
            self._try_later(now)
            return
        self._socket, self._connected_at = connection, now
        self.ask(RequestKind.JOIN, _NO_SESSION, 0)

    def _try_later(self, now: float) -> None:
        self._retry_at = now + self._pause
        self._pause = min(self._pause * 2, RETRY_SECONDS[1])

    def _wait(self, now: float, seconds: float) -> bool:
        """Whether there is something to read."""
        poll = select.poll()
        poll.register(self._wake.file, select.POLLIN)
        if self._socket is not None:
            poll.register(self._socket, select.POLLIN)
        else:
            seconds = min(seconds, max(0.0, self._retry_at - now))
        ready = [file for file, _ in poll.poll(seconds * 1000)]
        if self._wake.file in ready:
            self._wake.clear()
        return self._socket is not None and self._socket.fileno() in ready

    def _read(self) -> None:
        assert self._socket is not None
        try:
            with self._inbox.space() as space:
                count = self._socket.recv_into(space)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if count:
            self._pause = RETRY_SECONDS[0]
            self._inbox.fill(count)
        else:
            self._disconnect(0.0)
            self._try_later(time.monotonic())

    def _disconnect(self, retry_at: float) -> None:
        self._retry_at = retry_at
        self._inbox = Inbox(self._max_bytes)
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _connection(endpoint: Endpoint) -> socket.socket:
    if endpoint.path is None:
        connection = socket.create_connection((endpoint.host, endpoint.port), CONNECT_SECONDS)
        connection.setblocking(False)
        return connection
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.setblocking(False)
        connection.connect(endpoint.path)
    except BaseException:
        connection.close()
        raise
    return connection
