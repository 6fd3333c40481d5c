"""Input that is not HTTP, or not a known request: refused at once, without a word in the log for
each."""

import random

from tools.chaos.target import NotHeldError, Target, request, status_of

_POST = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
_SEED = 20
_MESSAGES = (
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
_ANSWER_SECONDS = 0.3


def broken_messages(target: Target) -> None:
    """Bad framing, bad headers, text that is not UTF-8, random bytes. No answer may be a 5xx."""
    random_bytes = random.Random(_SEED).randbytes
    while True:
        for message in (*_MESSAGES, random_bytes(2000)):
            if target.over:
                return
            _expect_no_server_error(target, message)


def huge_headers(target: Target) -> None:
    """Headers and addresses of megabytes, and ten thousand headers."""
    many = b"".join(b"X-%d: a\r\n" % number for number in range(10_000))
    messages = (
        b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (4 << 20) + b"\r\n\r\n",
        b"GET /" + b"a" * (4 << 20) + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\n" + many + b"\r\n",
    )
    while True:
        for message in messages:
            if target.over:
                return
            _expect_no_server_error(target, message)


def bodies_over_the_limit(target: Target) -> None:
    """Nine megabytes, announced and not announced; answered 413 or cut, never read to the end."""
    body = b'{"prompt":"' + b"a" * (9 << 20) + b'"}'
    chunk = b"100000\r\n" + b"a" * (1 << 20) + b"\r\n"
    chunked = _POST + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    while not target.over:
        status = target.post("/v1/completions", body)
        if status not in (0, 413):
            raise NotHeldError(f"a body over the limit was answered {status}")
        target.send(chunked + chunk * 10)


def _expect_no_server_error(target: Target, message: bytes) -> None:
    brief = Target(target.api_port, target.metrics_port, target.deadline - _over(target))
    status = status_of(brief.send(message))
    if status >= 500 and status != 503:
        raise NotHeldError(f"{message[:80]!r} was answered {status}")


def _over(target: Target) -> float:
    """Seconds between the end of one message's answer and the end of the attack."""
    return max(0.0, target.remaining - _ANSWER_SECONDS)
