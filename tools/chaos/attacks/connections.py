"""Connections that cost the server a descriptor each and never become a request that ends.

There are fewer of them than the server has descriptors: closing idle ones is for a proxy in front.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from itertools import count

from tools.chaos.target import Attack, Target, completion, request, reset

NUM_CONNECTIONS = 100
_LOOK_SECONDS = 0.5
_NUM_UPLOADS, _NUM_STREAMS = 48, 16
_UPLOAD_BYTES = 8 << 20
"""The largest body that is taken; all but its end is sent."""
_PORTION = b"a" * (64 << 10)
_BUFFER_BYTES = 2048
_CHUNKED = (
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b'Transfer-Encoding: chunked\r\n\r\nb\r\n{"prompt":"\r\n'
)


def _held(first: bytes, further: bytes = b"", *, of_metrics: bool = False) -> Attack:
    """This much is sent on each, and then `further` again and again."""

    def attack(target: Target) -> None:
        port = target.metrics_port if of_metrics else None
        with target.connections(NUM_CONNECTIONS, port) as held:
            while not target.over:
                held.each(first, further)
                target.wait(_LOOK_SECONDS)

    return attack


def _left(
    ask: Callable[[Target, int], socket.socket], leave: Callable[[socket.socket, int], float]
) -> Attack:
    """Connections one after the other, each asked for something and left.

    leave: closes it; returns the seconds until the next one.
    """

    def attack(target: Target) -> None:
        for number in count(1):
            if target.over:
                return
            try:
                pause = leave(ask(target, number), number)
            except OSError:
                pause = 0.1
            target.wait(pause)

    return attack


def _asked(made: socket.socket, message: bytes) -> socket.socket:
    made.sendall(message)
    return made


def _large_uploads(target: Target) -> None:
    """Bodies of the largest size, side by side, that stop before their end."""
    head = f"Content-Length: {_UPLOAD_BYTES}\r\nContent-Type: application/json\r\n\r\n"
    first = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\n{head}".encode() + b'{"prompt":"'
    with target.connections(_NUM_UPLOADS) as held:
        held.each(first)
        for _ in range(_UPLOAD_BYTES // len(_PORTION) - 1):
            if target.over:
                return
            held.each(first, _PORTION)
            target.wait(0.005)
        target.wait(target.remaining)


def _streams(target: Target) -> list[socket.socket]:
    message = request(
        "POST", "/v1/completions", completion(n=2, max_tokens=1500, logprobs=20, stream=True)
    )
    asked = []
    for _ in range(_NUM_STREAMS):
        with contextlib.suppress(OSError):
            asked.append(_asked(target.connect(receive_bytes=_BUFFER_BYTES), message))
    return asked


def _never_reading_streams(target: Target) -> None:
    while not target.over:
        asked = _streams(target)
        target.wait(20.0)
        for made in asked:
            made.close()


def _slow_readers(target: Target) -> None:
    """Long streams and pages, read a byte at a time."""
    asked = _streams(target)
    for port in (target.api_port, target.metrics_port):
        with contextlib.suppress(OSError):
            made = target.connect(port, receive_bytes=_BUFFER_BYTES)
            asked.append(_asked(made, request("GET", "/metrics")))
    for made in asked:
        made.setblocking(False)
    while not target.over:
        for made in asked:
            with contextlib.suppress(OSError):
                made.recv(1)
        target.wait(0.5)


def _stopped_client(target: Target) -> None:
    """A client that SIGSTOP stops while its streams are under way."""
    child = os.fork()
    if not child:
        asked = _streams(target)
        while asked:
            signal.pause()
    target.wait(0.5)
    os.kill(child, signal.SIGSTOP)
    target.wait(target.remaining)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _ask_briefly(target: Target, number: int) -> socket.socket:
    body = completion(max_tokens=200, stream=number % 2 == 0)
    made = _asked(target.connect(), request("POST", "/v1/completions", body))
    target.wait(0.01 * (number % 3))
    return made


def _ask_for_long(target: Target, number: int) -> socket.socket:
    """Its client leaves while it waits, is computed, or answers."""
    body = completion(n=1 + number % 8, max_tokens=300, stream=number % 2 == 0)
    made = _asked(target.connect(), request("POST", "/v1/completions", body))
    target.wait(0.05 * (number % 5))
    return made


def _ask_for_page(target: Target, number: int) -> socket.socket:
    port = (target.api_port, target.metrics_port)[number % 2]
    made = _asked(target.connect(port, receive_bytes=_BUFFER_BYTES), request("GET", "/metrics"))
    if number % 3:
        made.recv(1)
    return made


def _reset(made: socket.socket, _: int, pause: float = 0.01) -> float:
    reset(made)
    return pause


def _close(made: socket.socket, number: int) -> float:
    made.close() if number % 2 == 0 else reset(made)
    return 0.0


def _drop(made: socket.socket, _: int) -> float:
    made.close()
    return 0.004  # hundreds a second


CONNECTIONS: dict[str, Attack] = {
    "half_headers": _held(b"GET /hea"),
    "dripping_headers": _held(b"GET /health HTTP/1.1\r\nX-Drip: ", b"a"),
    "silent_connections": _held(b""),
    "unfinished_bodies": _held(_CHUNKED, b"1\r\na\r\n"),
    "large_uploads": _large_uploads,
    "kept_alive": _held(request("GET", "/health", close=False)),
    "half_headers_for_metrics": _held(b"GET /met", of_metrics=True),
    "resets": _left(_ask_briefly, _reset),
    "connection_flood": _left(lambda target, _: target.connect(), _drop),
    "never_reading_streams": _never_reading_streams,
    "slow_readers": _slow_readers,
    "stopped_client": _stopped_client,
    "aborted_scrapes": _left(_ask_for_page, lambda made, n: _reset(made, n, 0.02)),
    "cancelled_requests": _left(_ask_for_long, _close),
}
