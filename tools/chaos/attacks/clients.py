"""Clients that break the protocol, that come from elsewhere, or that are too many."""

import random
from collections.abc import Iterator
from itertools import cycle

from tools.chaos.target import (
    Attack,
    NotHeldError,
    Target,
    completion,
    request,
    side_by_side,
    status_of,
)

_POST = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
_SEED = 20
_BROKEN = (
    b"GET /health\r\n\r\n",
    b"GET /health HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
    b"GET /%ff%fe HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \xff\r\n\r\n",
    _POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    _POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    _POST + b"Content-Length: -5\r\n\r\n",
    _POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    _POST + b"Content-Length: \xb2\r\n\r\n",
    _POST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
    _POST + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\nabc",
    request("POST", "/v1/completions", b'{"prompt":"\xff\xfe"}'),
    request("POST", "/v1/completions", b'{"prompt":"\\ud800","max_tokens":1}'),
    request("POST", "/v1/completions", "{}".encode("utf-32")),
)
_MANY_HEADERS = b"".join(b"X-%d: a\r\n" % number for number in range(10_000))
_HUGE = (
    b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (4 << 20) + b"\r\n\r\n",
    b"GET /" + b"a" * (4 << 20) + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: a\r\n"
    + b"".join(b"X-%d: a\r\n" % n for n in range(10_000))
    + b"\r\n",
)
_BRIEF_SECONDS = 0.3


def _refused(*messages: bytes, random_bytes: int = 0) -> Attack:
    """No answer may be a 5xx."""

    def attack(target: Target) -> None:
        noise = random.Random(_SEED).randbytes
        for message in cycle((*messages, b"") if random_bytes else messages):
            if target.over:
                return
            sent = message or noise(random_bytes)
            status = status_of(target.send(sent, seconds=_BRIEF_SECONDS))
            if status >= 500 and status != 503:
                raise NotHeldError(f"{sent[:80]!r} was answered {status}")

    return attack


def _bodies_over_the_limit(target: Target) -> None:
    """Nine megabytes, announced and not announced; answered 413 or cut, never read to the end."""
    body = b'{"prompt":"' + b"a" * (9 << 20) + b'"}'
    chunk = b"100000\r\n" + b"a" * (1 << 20) + b"\r\n"
    chunked = _POST + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    while not target.over:
        status = target.post("/v1/completions", body)
        if status not in (0, 413):
            raise NotHeldError(f"a body over the limit was answered {status}")
        target.send(chunked + chunk * 10)


def _foreign(target: Target) -> Iterator[tuple[int, bytes]]:
    """POSTs with another page's Origin, as a form, and with another site's Host."""
    for port in (target.api_port, target.metrics_port):
        for route in ("/reset_prefix_cache", "/api/gpu/release", "/api/gpu/resume"):
            own = request("POST", route, b"{}")
            yield port, request("POST", route, b"{}", headers="Origin: http://evil.example\r\n")
            yield port, request("POST", route, b"", headers="Content-Type: text/plain\r\n")
            yield port, own.replace(b"Host: 127.0.0.1", b"Host: evil.example")


def _cross_site(target: Target) -> None:
    """A web page in an operator's browser must not reach a route that changes something."""
    while not target.over:
        for port, message in _foreign(target):
            if target.over:
                return
            status = status_of(target.send(message, port))
            if 200 <= status < 300:
                line = message.splitlines()[0].decode()
                raise NotHeldError(f"{line} was answered {status}")
        target.wait(0.1)


def _request_flood(target: Target) -> None:
    """Long requests side by side, each followed by the next; refused ones come again at once."""

    def repeat(number: int) -> None:
        while not target.over:
            body = completion(n=1 + number % 3, max_tokens=200 + number, prompt=[number] * 300)
            target.post("/v1/completions", body)
            target.wait(0.05)

    side_by_side(repeat, 48)


def _many_scrapers(target: Target) -> None:
    """Eight that ask for page after page on both ports, each on a new connection."""

    def scrape(number: int) -> None:
        while not target.over:
            target.send(
                request("GET", "/metrics"), (target.api_port, target.metrics_port)[number % 2]
            )
            target.wait(0.2)

    side_by_side(scrape, 8)


CLIENTS: dict[str, Attack] = {
    "broken_messages": _refused(*_BROKEN, random_bytes=2000),
    "huge_headers": _refused(*_HUGE),
    "bodies_over_the_limit": _bodies_over_the_limit,
    "many_scrapers": _many_scrapers,
    "cross_site": _cross_site,
    "request_flood": _request_flood,
}
