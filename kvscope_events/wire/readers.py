"""Resources that all readers of a process share: a ZMQ context, its monitors, a wake-up."""

import itertools
import os
import struct

import zmq

from kvscope_events.wire.endpoint import EndpointError

MAX_SOCKETS = 8192
"""Sockets of all readers together, three or four for each; ZMQ's own limit is 1023."""
NOT_A_PEER = (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
"""Monitor events which mean that something other than ZMQ answers there."""
_EVENT = struct.Struct("=hi")

Socket = zmq.Socket[bytes]


class Readers(zmq.Context["zmq.Socket[bytes]"]):
    """One for all readers of a process: each context has two threads and half a dozen files."""

    _instance = None  # not that of zmq.Context, which others may end
    _monitors = itertools.count()

    def __init__(self, io_threads: int = 1) -> None:
        super().__init__(io_threads)
        self.set(zmq.MAX_SOCKETS, MAX_SOCKETS)

    @classmethod
    def monitor(cls, socket: Socket, events: int) -> Socket:
        """A socket that delivers these events of another; close it after `disable_monitor`."""
        # An address that no monitor had before: ZMQ's own may still be in use by a closed one.
        return socket.get_monitor_socket(events, f"inproc://monitor-{next(cls._monitors)}")


def eventfd(endpoint: str) -> int:
    """A file with which another thread interrupts the endpoint's wait; raises EndpointError."""
    try:
        return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    except OSError as error:
        remedy = "raise the limit of open files (ulimit -n)"
        raise EndpointError(endpoint, f"cannot be read: {error.strerror}", remedy) from None


def next_event(monitor: Socket) -> int | None:
    """The next waiting event, or None."""
    if not monitor.poll(0):
        return None
    event, _ = _EVENT.unpack(monitor.recv_multipart()[0])
    return int(event)
