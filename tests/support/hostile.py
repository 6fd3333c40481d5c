"""A server that answers each path with whatever bytes a test chooses, at any pace, without end."""

import contextlib
import json
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

Answer = bytes | Callable[[socket.socket], None]
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass
class Hostile:
    url: str
    answers: dict[str, Answer]
    """By path; others get 404."""
    num_asked: dict[str, int] = field(default_factory=dict)


def response(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = (f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "Connection: close")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def head(*headers: str, status: str = "200 OK") -> bytes:
    """The head of an answer that does not declare its end."""
    return "\r\n".join((f"HTTP/1.1 {status}", *headers, "Connection: close")).encode() + b"\r\n\r\n"


def models(**changes: object) -> bytes:
    model = {"id": "hostile", "object": "model", "max_model_len": 512} | changes
    return response(json.dumps({"object": "list", "data": [model]}).encode())


def completion(usage: object = None, *, text: str = "x", num_chunks: int = 3) -> bytes:
    chunk = {"choices": [{"index": 0, "text": text}]}
    events = [chunk] * num_chunks + [{"choices": [{"text": text, "finish_reason": "length"}]}]
    if usage is not None:
        events.append({"choices": [], "usage": usage})
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    return response(body.encode(), "Content-Type: text/event-stream")


def drip(first: bytes, piece: bytes = b" ", seconds: float = 0.02) -> Answer:
    """A piece now and then, for ever: no single read takes long."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(piece)
            time.sleep(seconds)

    return answer


def endless(first: bytes, piece: bytes) -> Answer:
    """As fast as it is read, for ever."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(piece)

    return answer


def bomb(num_mib: int) -> bytes:
    """Small, and `num_mib` MiB after unpacking."""
    packer = zlib.compressobj(level=1, wbits=31)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(num_mib)) + packer.flush()
    return response(packed, "Content-Encoding: gzip", "Content-Type: text/plain")


@contextmanager
def serving(answers: Mapping[str, Answer]) -> Iterator[Hostile]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        hostile = Hostile(f"http://127.0.0.1:{listener.getsockname()[1]}", dict(answers))
        threading.Thread(target=_accept, args=(listener, hostile), daemon=True).start()
        yield hostile
        listener.shutdown(socket.SHUT_RDWR)  # close alone would not wake the thread


def _accept(listener: socket.socket, hostile: Hostile) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_answer, args=(connection, hostile), daemon=True).start()


def _answer(connection: socket.socket, hostile: Hostile) -> None:
    with contextlib.suppress(OSError), connection:  # the reader hangs up, as it should
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(65536)
        first, _, body = received.partition(b"\r\n\r\n")
        length = _LENGTH.search(first)
        while length is not None and len(body) < int(length[1]):
            body += connection.recv(65536)
        path = first.split()[1].decode()
        hostile.num_asked[path] = hostile.num_asked.get(path, 0) + 1
        answer = hostile.answers.get(path, response(b"{}", status="404 Not Found"))
        if callable(answer):
            answer(connection)
        else:
            connection.sendall(answer)
