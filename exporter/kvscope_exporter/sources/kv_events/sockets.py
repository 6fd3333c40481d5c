"""A ZMQ context and its monitors, which all readers of KV events of a process share."""

import itertools
import struct

import zmq

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


def next_event(monitor: Socket) -> int | None:
    """The next waiting event, or None."""
    if not monitor.poll(0):
        return None
    event, _ = _EVENT.unpack(monitor.recv_multipart()[0])
    return int(event)
