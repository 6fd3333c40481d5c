"""A server whose every byte a test chooses, on a real socket."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvscope_exporter.scrape import PageReader

Answer = bytes | Callable[[socket.socket], None]
"""Bytes to send before the connection is closed, or what to do with it."""


HTML = b"<!DOCTYPE html>\n<html><body>Sign in</body></html>\n"


@contextmanager
def answering(answer: Answer, *, reads_first: bool = True) -> Iterator[str]:
    """The URL of a page; each connection gets the same answer.

    reads_first: the request is read before the answer, which then need not do so.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            arguments = (connection, answer, reads_first)
            threading.Thread(target=_one, args=arguments, daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def page(body: bytes, *, content_type: str = "text/plain; version=0.0.4", more: str = "") -> bytes:
    """A whole and proper answer."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{more}\r\n".encode() + body


def _one(connection: socket.socket, answer: Answer, reads_first: bool) -> None:
    with connection:
        try:
            if reads_first:
                connection.recv(65536)
            if callable(answer):
                answer(connection)
            else:
                connection.sendall(answer)
        except OSError:
            return  # the reader has hung up, as some of these tests want it to


def counted(reader: PageReader) -> dict[str, int]:
    return {kind: count for kind, count in reader.errors.items() if count}
