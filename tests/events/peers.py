"""Publishers, and peers that connect to them and never read."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kvscope_events.wire.publisher import WirePublisher
from tests.events.producers import Producer


@contextmanager
def published(endpoint: str) -> Iterator[tuple[Producer, WirePublisher]]:
    made = Producer()
    publisher = WirePublisher(made.bus, endpoint)
    publisher.start()
    made.begin()
    yield made, publisher
    publisher.stop()


def connection(endpoint: str) -> socket.socket:
    """A peer that never reads."""
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(10)
    made.connect(endpoint.removeprefix("ipc://"))
    return made


def is_sent_away(peer: socket.socket) -> bool:
    """Whether the publisher has closed the connection, after what it sent before."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if not peer.recv(1 << 20):
                return True
        except ConnectionError:
            return True
        except TimeoutError:
            return False
    return False
