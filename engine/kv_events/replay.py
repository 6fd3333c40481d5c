"""The last messages, and answers to readers that missed some of them."""

from collections import deque

import zmq

END = b"\xff" * 8
"""Instead of a number: the answer is complete."""
ANSWERS_PER_ROUND = 4
"""The live stream waits for so many at most; other readers are answered in the next round."""


class Replay:
    """Messages by number, the oldest forgotten first. One thread."""

    def __init__(self, socket: "zmq.Socket[bytes] | None", topic: bytes, buffer_steps: int) -> None:
        """socket: a ROUTER; None: nothing is kept, since nobody can ask."""
        self._socket = socket
        self._topic = topic
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=buffer_steps if socket else 0)

    def keep(self, number: bytes, payload: bytes) -> None:
        """number: eight bytes, big-endian, above all before it."""
        self._kept.append((number, payload))

    def serve(self) -> None:
        """Answer what was asked; a request that is none is left unanswered."""
        if self._socket is None:
            return
        for _ in range(ANSWERS_PER_ROUND):
            if not int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                return
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
            if len(frames) == 3 and len(frames[2]) == 8:
                self._answer(self._socket, frames[0], frames[2])

    def _answer(self, socket: "zmq.Socket[bytes]", reader: bytes, first: bytes) -> None:
        for number, payload in self._kept:
            if number >= first:  # as integers: both are big-endian and of one length
                socket.send_multipart([reader, b"", self._topic, number, payload], zmq.NOBLOCK)
        socket.send_multipart([reader, b"", b"", END, b""], zmq.NOBLOCK)
