"""Clients that close their half of the connection once they have asked, which HTTP allows."""

import contextlib
import socket

from tools.chaos.target import NotHeldError, Target, completion, request, status_of

_ANSWER_SECONDS = 10.0
_INTERIM = 100
"""Continue: the answer itself comes after it."""


def half_closed(target: Target) -> None:
    """They get their answers, whole."""
    asked = (
        (request("GET", "/health"), target.api_port),
        (request("GET", "/metrics"), target.metrics_port),
        (request("POST", "/v1/completions", completion(max_tokens=4)), target.api_port),
    )
    while True:
        for message, port in asked:
            if target.over:
                return
            status = _ask_and_close(target, message, port)
            if status != 200:
                line = message.splitlines()[0].decode()
                raise NotHeldError(f"{line}, its client half closed, was answered {status}")
        target.wait(0.05)


def _ask_and_close(target: Target, message: bytes, port: int) -> int:
    with contextlib.suppress(OSError), target.connect(port) as made:
        made.settimeout(_ANSWER_SECONDS)
        made.sendall(message)
        made.shutdown(socket.SHUT_WR)
        answer = b""
        while data := made.recv(1 << 16):
            answer += data
        while status_of(answer) == _INTERIM:
            answer = answer.partition(b"\r\n\r\n")[2]
        return status_of(answer)
    return 0
