"""Whatever answers instead of a page is counted by kind, in time, and gives no number."""

import gzip
import socket
import time

import pytest

from kvscope_exporter.scrape import PageReader
from tests.scrape.answers import HTML, Answer, answering, counted, page
from tests.scrape.cases.vllm import CURRENT_PAGE

PAGE = CURRENT_PAGE.encode()


def drip(connection: socket.socket) -> None:
    connection.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 999999\r\n\r\n"
    )
    while True:
        connection.sendall(b"a 1\n")
        time.sleep(0.02)


def drip_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-A: b\r\n")
        time.sleep(0.02)


def silence(connection: socket.socket) -> None:
    connection.recv(1)


BOMB = gzip.compress(b"a 1\n" * (9 << 20))
BAD: dict[str, tuple[str, Answer]] = {
    "not found": ("status", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
    "redirect": (
        "redirect",
        b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
    ),
    "a part": ("status", page(PAGE).replace(b"200 OK", b"206 Partial Content")),
    "html": ("not_metrics", page(HTML, content_type="text/html")),
    "html that says it is text": ("not_metrics", page(HTML, content_type="text/plain")),
    "json": ("not_metrics", page(b"{}", content_type="application/json")),
    "no content type": ("not_metrics", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n"),
    "nothing": ("not_metrics", page(b"")),
    "shorter than it says": ("truncated", page(PAGE)[:-100]),
    "no length": ("truncated", b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + PAGE),
    "chunks without an end": (
        "truncated",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"4\r\na 1\n\r\n",
    ),
    "openmetrics without its end": (
        "truncated",
        page(PAGE, content_type="application/openmetrics-text; version=1.0.0"),
    ),
    "not utf-8": ("malformed", page(b"a 1\n\xff\xfe")),
    "not http": ("protocol", b"SSH-2.0-OpenSSH_9.2\r\n"),
    "hangs up": ("protocol", b""),
    "brotli": ("encoding", page(PAGE, more="Content-Encoding: br\r\n")),
    "gzip that is none": ("encoding", page(PAGE, more="Content-Encoding: gzip\r\n")),
    "gzip cut": (
        "truncated",
        page(gzip.compress(PAGE)[:-20], more="Content-Encoding: gzip\r\n"),
    ),
    "gzip bomb": ("too_large", page(BOMB, more="Content-Encoding: gzip\r\n")),
    "one symbol, for which all takes four times the memory": (
        "too_large",
        page(b"# " + b"x" * (17 << 20) + "\U0001f525\n".encode() + PAGE),
    ),
    "body that never ends": ("timeout", drip),
    "headers that never end": ("timeout", drip_headers),
    "silence": ("timeout", silence),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.timed
def test_what_is_no_page_is_counted_by_kind(name: str) -> None:
    kind, answer = BAD[name]
    with answering(answer) as url:
        timeout = 0.5 if kind == "timeout" else 10
        reader = PageReader(url, "vllm", timeout=timeout)
        began = time.monotonic()
        reading = reader.read()
        assert time.monotonic() - began < timeout + 3, "what a busy machine adds"
        reader.close()
    assert not reading.is_up
    assert reading.engines == {}
    assert counted(reader) == {kind: 1}
    assert reader.last_success_ns is None


def test_nothing_listens_and_a_name_does_not_exist() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for url, kind in (
        (f"http://127.0.0.1:{port}/metrics", "connection"),
        ("http://no-such-host.invalid/metrics", "dns"),
    ):
        reader = PageReader(url, "vllm", timeout=5)
        assert not reader.read().is_up
        assert counted(reader) == {kind: 1}
        reader.close()


def test_tls_that_fails_is_told_apart() -> None:
    with answering(page(PAGE)) as url:  # speaks no TLS
        reader = PageReader(url.replace("http:", "https:"), "vllm", timeout=5)
        assert not reader.read().is_up
        assert counted(reader) == {"tls": 1}
        reader.close()
