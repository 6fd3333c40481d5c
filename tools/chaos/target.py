"""The target of an attack, its duration, and its means: plain sockets, from an address of its own,
so that limits per client distinguish it from the unrelated client."""

import contextlib
import json
import math
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

ATTACKER = "127.0.0.2"
"""Source address of every attack; the unrelated client has 127.0.0.1."""
_CONNECT_SECONDS = 2.0
_OPEN_SECONDS = 0.005
"""Between two connections that are to be held: 200 a second, which is not a flood."""
_MAX_ANSWER_BYTES = 64 << 20
JSON = "application/json"


class NotHeldError(Exception):
    """The server did what it promises not to do."""


@dataclass(frozen=True, slots=True)
class Target:
    """The ports of a server, and the end of the attack."""

    api_port: int
    metrics_port: int
    deadline: float
    """On the monotonic clock of this machine."""

    @property
    def remaining(self) -> float:
        """Seconds; never negative."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def over(self) -> bool:
        return not self.remaining

    def wait(self, seconds: float) -> None:
        time.sleep(min(seconds, self.remaining))

    def connect(self, port: int | None = None, receive_bytes: int | None = None) -> socket.socket:
        """A connection to the API, or to that port. Raises OSError.

        receive_bytes: of the socket's buffer, so that a client that does not read is soon felt.
        """
        made = socket.socket()
        try:
            if receive_bytes is not None:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            made.settimeout(_CONNECT_SECONDS)
            made.bind((ATTACKER, 0))
            made.connect(("127.0.0.1", port or self.api_port))
        except OSError:
            made.close()
            raise
        return made

    def connections(self, count: int, port: int | None = None) -> "Connections":
        """Up to `count` connections, to be held open."""
        return Connections(self, count, port)

    def send(self, data: bytes, port: int | None = None, seconds: float = math.inf) -> bytes:
        """The answer before the end of the attack, or within these seconds: all of it if the
        server closes, else what there is. Empty where it took no connection or cut it."""
        with contextlib.suppress(OSError), self.connect(port) as made:
            made.settimeout(max(0.1, min(seconds, self.remaining)))
            made.sendall(data)
            return b"".join(_received(made))
        return b""

    def post(self, path: str, body: bytes, port: int | None = None, headers: str = "") -> int:
        """The status of the answer; 0 without one before the end of the attack."""
        return status_of(self.send(request("POST", path, body, headers=headers), port))


Attack = Callable[[Target], None]
"""Attacks until the target's deadline. Raises NotHeldError if the server broke a promise."""


def side_by_side(work: Callable[[int], None], count: int) -> None:
    """As many threads, each with its number, until all have ended."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Connections:
    """Connections that are reopened when the server closes them; closed with the block."""

    def __init__(self, target: Target, count: int, port: int | None) -> None:
        self._target = target
        self._port = port
        self._open: list[socket.socket | None] = [None] * count

    def __enter__(self) -> "Connections":
        return self

    def __exit__(self, *details: object) -> None:
        for made in self._open:
            if made is not None:
                made.close()

    def each(self, first: bytes, further: bytes = b"") -> None:
        """Open what is not open and send `first` there; send `further` to the others."""
        for index, made in enumerate(self._open):
            if self._target.over:
                return
            try:
                if made is None:
                    self._target.wait(_OPEN_SECONDS)
                    made = self._target.connect(self._port)
                    self._open[index] = made
                    made.setblocking(False)
                    made.send(first) if first else None
                elif _is_closed(made):
                    made.close()
                    self._open[index] = None
                elif further:
                    made.send(further)
            except OSError:  # refused, cut, or its buffer is full
                if made is not None:
                    made.close()
                self._open[index] = None


def request(
    method: str, path: str, body: bytes | None = None, *, headers: str = "", close: bool = True
) -> bytes:
    """One HTTP request; `headers` are further lines, each with its CRLF."""
    lines = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}"
    if close:
        lines += "Connection: close\r\n"
    if body is not None:
        if "content-type:" not in headers.lower():
            lines += f"Content-Type: {JSON}\r\n"
        lines += f"Content-Length: {len(body)}\r\n"
    return lines.encode("latin-1") + b"\r\n" + (body or b"")


def completion(**fields: object) -> bytes:
    """The body of a completion that does not end early."""
    return json.dumps({"prompt": [72, 105], "ignore_eos": True, "temperature": 0} | fields).encode()


def chat(content: object, **fields: object) -> bytes:
    """The body of a chat with one message."""
    return json.dumps({"messages": [{"role": "user", "content": content}]} | fields).encode()


def status_of(answer: bytes) -> int:
    """0: no HTTP answer."""
    words = answer[:64].split()
    is_answer = len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit()
    return int(words[1]) if is_answer else 0


def reset(made: socket.socket) -> None:
    """Close with a RST instead of a FIN."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    made.close()


def _received(made: socket.socket) -> Iterator[bytes]:
    received = 0
    while received < _MAX_ANSWER_BYTES:
        try:
            data = made.recv(1 << 16)
        except OSError:
            return
        if not data:
            return
        received += len(data)
        yield data


def _is_closed(made: socket.socket) -> bool:
    try:
        return not made.recv(1 << 16)
    except BlockingIOError:
        return False
