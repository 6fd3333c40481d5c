"""The readers of a publisher: a listening socket and the connections to it, all non-blocking.

    connect -> backlog -> [reader: queue of messages -> socket] -> closed: it left, broke the
    protocol, or took nothing for STALLED_SECONDS

It runs inside foreign servers. So sockets are Python's own: a library that asserts would end the
server when its files run out. A reader that cannot be accepted waits in the backlog, and one that
would take a file which the server may need is sent away; it comes again.
"""

import errno
import os
import resource
import select
import socket
import time
from collections import deque
from collections.abc import Iterator

from kvscope_events.wire.endpoint import Endpoint, EndpointError
from kvscope_events.wire.frame import REQUEST_BYTES, ReaderRequest, read_request
from kvscope_events.wire.message import MessageKind, prefix

MAX_READERS = 64
"""Connections at a time; further ones are closed at once."""
SPARE_FILES = 32
"""Files that are left to the server, or an eighth of its limit if that is less."""
QUEUE_BYTES = 8 << 20
"""Messages queued for one reader; a single one of any size always fits. The ring holds most of them
as well: only what it has dropped since is extra memory."""
ALL_QUEUES_BYTES = 64 << 20
"""The same for all readers together, of which each may have asked for other messages."""
STALLED_SECONDS = 10.0
"""A reader that has taken nothing of what is queued for that long is disconnected."""
BACKLOG = 64
READ_BYTES = 1024
"""Requests read from one reader at a time; the rest of a flood waits in its own connection."""
_SEND = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_VIEWS = 32  # passed to one system call

_open: set["Readers"] = set()


class Readers:
    """Listens from construction to `close`; raises EndpointError. Used by one thread at a time."""

    def __init__(self, endpoint: Endpoint, high_water: int) -> None:
        """high_water: messages queued for one reader; further ones are dropped, for it alone."""
        self._endpoint = endpoint
        self._high_water = high_water
        self._listener = _listen(endpoint)
        self.address = endpoint.address
        if endpoint.path is None:
            host, port = self._listener.getsockname()[:2]
            self.address = f"tcp://{f'[{host}]' if ':' in host else host}:{port}"
        self._readers: dict[int, Reader] = {}
        self._queued_bytes = 0
        """Sum over all readers."""
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)
        self.ignored = 0
        """Messages of peers that were no request; each ended its connection."""
        _open.add(self)

    def listen_again(self) -> None:
        """The socket file is gone: make another. Readers that are connected stay. Raises
        EndpointError, and then the former one is still there."""
        listener = _listen(self._endpoint)
        self._poll.unregister(self._listener)
        self._listener.close()
        self._listener = listener
        self._poll.register(listener, select.POLLIN)

    @property
    def waiting(self) -> bool:
        """Whether a reader has not taken all that was sent to it."""
        return any(reader.queue for reader in self._readers.values())

    def send(self, body: bytes) -> None:
        """Send a message to all; those that cannot take it lose it."""
        head = prefix(MessageKind.STREAM, len(body))
        for reader in [*self._readers.values()]:
            self._send(reader, head, body)

    def answer(self, reader: "Reader", body: bytes) -> None:
        """Send a message to the reader that asked, if it is still there."""
        if reader.file in self._readers:
            self._send(reader, prefix(MessageKind.ANSWER, len(body)), body)

    def requests(self) -> Iterator[tuple["Reader", ReaderRequest]]:
        """Requests of readers that wait now, some of each; also accepts new readers."""
        for file, _ in self._poll.poll(0):
            reader = self._readers.get(file)
            if reader is None:
                self._accept()
                continue
            for request in self._read(reader):
                yield reader, request

    def push(self, seconds: float) -> None:
        """Go on with what readers have not taken, as they take it, for so long at most."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            poll = select.poll()
            for reader in self._readers.values():
                if reader.queue:
                    poll.register(reader.file, select.POLLOUT)
            ready = poll.poll(left * 1000) if self.waiting else []
            if not ready:
                break
            moved = [self._push(self._readers[file]) for file, _ in ready]
            if not any(moved):
                break  # the kernel has no memory for it: to go on at once would only be busy
        stalled_at = time.monotonic() - STALLED_SECONDS
        for reader in [*self._readers.values()]:
            if reader.queue and reader.moved_at < stalled_at:
                self._drop(reader)

    def close(self) -> None:
        """May be repeated."""
        _open.discard(self)
        for reader in [*self._readers.values()]:
            self._drop(reader)
        self._listener.close()

    def abandon(self) -> None:
        """Close the files of a forked child: only its parent serves them."""
        for opened in (self._listener, *(reader.socket for reader in self._readers.values())):
            opened.close()
        self._readers.clear()

    def _accept(self) -> None:
        """All that wait, but no more than the backlog holds."""
        for _ in range(BACKLOG):
            try:
                accepted, _ = self._listener.accept()
            except OSError:  # none waits, or no file is left: then it stays in the backlog
                return
            self._admit(accepted)

    def _admit(self, accepted: socket.socket) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        spare = min(SPARE_FILES, limit // 8)
        # Numbers are given from the lowest free one on, so this one shows how many are taken.
        if len(self._readers) == MAX_READERS or (
            limit != resource.RLIM_INFINITY and accepted.fileno() >= limit - spare
        ):
            accepted.close()
            return
        accepted.setblocking(False)
        if accepted.family != socket.AF_UNIX:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = Reader(accepted)
        self._readers[reader.file] = reader
        self._poll.register(reader.file, select.POLLIN)

    def _read(self, reader: "Reader") -> Iterator[ReaderRequest]:
        try:
            received = reader.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._drop(reader)
            return
        reader.received += received
        while len(reader.received) >= REQUEST_BYTES:
            request = read_request(bytes(reader.received[:REQUEST_BYTES]))
            del reader.received[:REQUEST_BYTES]
            if request is None:
                self.ignored += 1
                self._drop(reader)
                return
            yield request

    def _send(self, reader: "Reader", head: bytes, body: bytes) -> None:
        size = len(head) + len(body)
        if reader.queue:
            over = reader.queued_bytes + size > QUEUE_BYTES
            over = over or self._queued_bytes + size > ALL_QUEUES_BYTES
            if over or len(reader.queue) >= 2 * self._high_water:
                return
        else:
            reader.moved_at = time.monotonic()
        reader.queue += (memoryview(head), memoryview(body))
        reader.queued_bytes += size
        self._queued_bytes += size
        self._push(reader)

    def _push(self, reader: "Reader") -> bool:
        """Whether something has changed: it took some, or is gone."""
        queue, has_moved = reader.queue, False
        while queue:
            views = [queue[place] for place in range(min(len(queue), _VIEWS))]
            try:
                sent = reader.socket.sendmsg(views, (), _SEND)
            except BlockingIOError:
                return has_moved
            except OSError as error:
                if error.errno == errno.ENOBUFS:  # as good as blocked
                    return has_moved
                self._drop(reader)
                return True
            has_moved = True
            reader.moved_at = time.monotonic()
            reader.queued_bytes -= sent
            self._queued_bytes -= sent
            while queue and sent >= len(queue[0]):
                sent -= len(queue.popleft())
            if sent:
                queue[0] = queue[0][sent:]
        return has_moved

    def _drop(self, reader: "Reader") -> None:
        if self._readers.pop(reader.file, None) is not None:
            self._poll.unregister(reader.file)
            self._queued_bytes -= reader.queued_bytes
            reader.queue.clear()
            reader.socket.close()


class Reader:
    """One connection."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.file = accepted.fileno()
        self.received = bytearray()
        self.queue: deque[memoryview] = deque()
        """A prefix and a body for each message; the first may be sent in part."""
        self.queued_bytes = 0
        self.moved_at = 0.0
        """When it last took something."""


def _listen(endpoint: Endpoint) -> socket.socket:
    listener: socket.socket | None = None
    try:
        if endpoint.path is not None:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(endpoint.path)
        else:
            family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
            listener = socket.socket(family)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((endpoint.host, endpoint.port))
        listener.listen(BACKLOG)
    except OSError as error:
        if listener is not None:
            listener.close()
        if error.errno == errno.EADDRINUSE:
            raise EndpointError(
                endpoint.address, "another process listens there", "stop it or use another endpoint"
            ) from error
        problem = f"cannot be bound: {error.strerror or error}"
        raise EndpointError(endpoint.address, problem, "use another endpoint") from error
    listener.setblocking(False)
    return listener


def _forked() -> None:
    """A child that kept the sockets would keep their peers waiting once its parent has ended."""
    for readers in [*_open]:
        readers.abandon()
    _open.clear()


os.register_at_fork(after_in_child=_forked)
