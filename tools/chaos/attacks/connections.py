"""Connections that cost the server a descriptor each and never become a request.

There are more of them than the server has descriptors.
"""

from tools.chaos.target import Target, completion, request, reset

NUM_CONNECTIONS = 300
_LOOK_SECONDS = 0.5
_NUM_UPLOADS = 48
_UPLOAD_BYTES = 8 << 20
"""The largest body that is taken; all but its end is sent."""
_PORTION = b"a" * (64 << 10)


def _hold(target: Target, first: bytes, further: bytes = b"", port: int | None = None) -> None:
    with target.connections(NUM_CONNECTIONS, port) as held:
        while not target.over:
            held.each(first, further)
            target.wait(_LOOK_SECONDS)


def half_headers(target: Target) -> None:
    """The beginning of a request line."""
    _hold(target, b"GET /hea")


def dripping_headers(target: Target) -> None:
    """A header that grows by a byte at a time."""
    _hold(target, b"GET /health HTTP/1.1\r\nX-Drip: ", b"a")


def silent_connections(target: Target) -> None:
    """Not a byte."""
    _hold(target, b"")


def unfinished_bodies(target: Target) -> None:
    """Chunked bodies that never end."""
    head = (
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    _hold(target, head + b'b\r\n{"prompt":"\r\n', b"1\r\na\r\n")


def large_uploads(target: Target) -> None:
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


def kept_alive(target: Target) -> None:
    """One request each, and then nothing more on the connection."""
    _hold(target, request("GET", "/health", close=False))


def half_headers_for_metrics(target: Target) -> None:
    """The same on the port of the metrics."""
    _hold(target, b"GET /met", port=target.metrics_port)


def resets(target: Target) -> None:
    """Requests whose connection is reset at once, or a little later."""
    number = 0
    while not target.over:
        number += 1
        body = completion(max_tokens=200, stream=number % 2 == 0)
        try:
            made = target.connect()
            made.sendall(request("POST", "/v1/completions", body))
        except OSError:
            target.wait(0.1)
            continue
        target.wait(0.01 * (number % 3))
        reset(made)
        target.wait(0.01)


def connection_flood(target: Target) -> None:
    """Hundreds of connections a second, opened and closed without a word."""
    while not target.over:
        try:
            target.connect().close()
        except OSError:
            target.wait(0.1)
        target.wait(0.004)
