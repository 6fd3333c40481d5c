"""Clients that ask and do not read: streams whose buffers fill, a client that is stopped."""

import contextlib
import os
import signal
import socket

from tools.chaos.target import Target, completion, request

_NUM_STREAMS = 16
_BUFFER_BYTES = 2048


def _streams(target: Target) -> list[socket.socket]:
    body = completion(n=2, max_tokens=1500, logprobs=20, stream=True)
    asked = []
    for _ in range(_NUM_STREAMS):
        with contextlib.suppress(OSError):
            made = target.connect(receive_bytes=_BUFFER_BYTES)
            made.sendall(request("POST", "/v1/completions", body))
            asked.append(made)
    return asked


def never_reading_streams(target: Target) -> None:
    """Long streams, of which not a byte is read."""
    while not target.over:
        asked = _streams(target)
        target.wait(20.0)
        for made in asked:
            made.close()


def slow_readers(target: Target) -> None:
    """Long streams and pages, read a byte at a time."""
    asked = _streams(target)
    for port in (target.api_port, target.metrics_port):
        with contextlib.suppress(OSError):
            made = target.connect(port, receive_bytes=_BUFFER_BYTES)
            made.sendall(request("GET", "/metrics"))
            asked.append(made)
    for made in asked:
        made.setblocking(False)
    while not target.over:
        for made in asked:
            with contextlib.suppress(OSError):
                made.recv(1)
        target.wait(0.5)
    for made in asked:
        made.close()


def stopped_client(target: Target) -> None:
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
