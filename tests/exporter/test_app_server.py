"""The main port of serve and sidecar: clients that come and say nothing do not stay."""

import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from exporter.web.http_server import bind
from exporter.web.limits import Limits
from exporter.web.metrics import bare_app
from kvscope.serving.run import AppServer


@pytest.fixture
def port() -> Iterator[int]:
    server = AppServer(bare_app("test"), limits=Limits(header_seconds=0.2))
    with bind("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield int(listening.getsockname()[1])
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHost: a\r\n"])
def test_clients_that_never_complete_a_request_lose_their_connections(
    port: int, sent: bytes
) -> None:
    clients = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(50)]
    for client in clients:
        client.sendall(sent)
    assert httpx.get(f"http://127.0.0.1:{port}/").status_code == 404, "others are answered"
    for client in clients:
        assert client.recv(1024) == b"", "closed by the server"
        client.close()
