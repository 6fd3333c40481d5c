"""A foreign server over real HTTP or HTTPS, whose answers a test chooses by path."""

import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TEXT = "text/plain; version=1.0.0; charset=utf-8"
Answer = tuple[int, str, bytes] | Callable[[BaseHTTPRequestHandler], None]
"""Status, content type and body; or what to do with the request."""


def text(body: str, content_type: str = TEXT, status: int = 200) -> Answer:
    return status, content_type, body.encode()


def json(body: str, status: int = 200) -> Answer:
    return text(body, "application/json", status)


@dataclass
class Peer:
    url: str
    answers: dict[str, Answer]
    """By path; others are 404. May be changed while it serves."""
    asked: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Certificate:
    """Of 127.0.0.1 and of a name, signed by itself."""

    file: Path
    key: Path


def make_certificate(folder: Path, name: str = "server.example") -> Certificate:
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}", "-out", made.file, "-keyout"),
            *(made.key, "-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    return made


@contextmanager
def serving(
    answers: Mapping[str, Answer],
    certificate: Certificate | None = None,
    *,
    clients: Path | None = None,
) -> Iterator[Peer]:
    """clients: only those with a certificate of this authority are served."""
    peer = Peer("", dict(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            peer.asked.append(path)
            peer.headers.append(dict(self.headers))
            answer = peer.answers.get(path, (404, "application/json", b'{"detail":"Not Found"}'))
            if callable(answer):
                answer(self)
                return
            status, content_type, body = answer
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # the reader has hung up, as some of these tests want it to

    server = Server(("127.0.0.1", 0), Handler)
    scheme = "http"
    if certificate is not None:
        scheme = "https"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.file, certificate.key)
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(clients)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    peer.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield peer
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
