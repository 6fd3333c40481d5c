"""The latest messages, and answers to readers that missed some of them."""

import time
from collections import deque

import zmq

END = b"\xff" * 8
"""Stands for a number: the answer is complete."""
REST = 4
"""Pause after an answer, as a multiple of the time it took: readers that keep asking get a fifth of
the thread, and the engine, which shares its interpreter, hardly notices."""


class Replay:
    """Messages by number, the oldest forgotten first. One thread."""

    def __init__(self, socket: "zmq.Socket[bytes] | None", topic: bytes, buffer_steps: int) -> None:
        """socket: a ROUTER; None: nothing is kept, since it cannot be requested."""
        self._socket = socket
        self._topic = topic
        self._due_ns = 0
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=0 if socket is None else buffer_steps)

    def keep(self, number: bytes, payload: bytes) -> None:
        """number: eight bytes, big-endian, greater than all before it."""
        self._kept.append((number, payload))

    def serve(self) -> None:
        """Answer one request, if there is one; anything else is left unanswered."""
        start_ns = time.monotonic_ns()
        if self._socket is None or start_ns < self._due_ns:
            return
        if not int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            return
        frames = self._socket.recv_multipart(zmq.NOBLOCK)
        if len(frames) == 3 and len(frames[2]) == 8:
            self._answer(self._socket, frames[0], frames[2])
        now_ns = time.monotonic_ns()
        self._due_ns = now_ns + REST * (now_ns - start_ns)

    def _answer(self, socket: "zmq.Socket[bytes]", reader: bytes, first: bytes) -> None:
        for number, payload in self._kept:
            if number >= first:  # as integers: both are big-endian and of one length
                socket.send_multipart([reader, b"", self._topic, number, payload], zmq.NOBLOCK)
        socket.send_multipart([reader, b"", b"", END, b""], zmq.NOBLOCK)
