"""A listener with TLS: pages over https, certificates of clients, handshakes that never end."""

import socket
import ssl
from pathlib import Path

import httpx
import pytest

from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.metrics import metrics_app
from kvscope_exporter.web.tls import server_context
from tests.support.http_peer import Certificate, make_certificate
from tests.support.waiting import WAIT_SECONDS


class Page:
    def render(self, accept: str | None = None, detail: object = None) -> tuple[bytes, str]:
        return b"up 1\n", "text/plain"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificates"))


def trusting(certificate: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate.file))


def test_a_page_is_served_over_https(certificate: Certificate) -> None:
    context = server_context(certificate.file, certificate.key)
    with HttpServer(metrics_app(Page()), "127.0.0.1", 0, tls=context) as server:
        url = f"https://127.0.0.1:{server.port}/metrics"
        assert httpx.get(url, verify=trusting(certificate)).text == "up 1\n"
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{server.port}/metrics")


def test_a_client_without_a_certificate_gets_nothing_where_one_is_asked_for(
    certificate: Certificate,
) -> None:
    context = server_context(
        certificate.file,
        certificate.key,
        authorities=certificate.file,
        client_auth="RequireAndVerifyClientCert",
    )
    with HttpServer(metrics_app(Page()), "127.0.0.1", 0, tls=context) as server:
        url = f"https://127.0.0.1:{server.port}/metrics"
        with pytest.raises(httpx.HTTPError):
            httpx.get(url, verify=trusting(certificate))
        known = trusting(certificate)
        known.load_cert_chain(certificate.file, certificate.key)
        assert httpx.get(url, verify=known).text == "up 1\n"


def test_handshakes_that_never_end_keep_nobody_out(certificate: Certificate) -> None:
    context = server_context(certificate.file, certificate.key)
    with HttpServer(metrics_app(Page()), "127.0.0.1", 0, tls=context) as server:
        address = ("127.0.0.1", server.port)
        silent = [socket.create_connection(address, timeout=WAIT_SECONDS) for _ in range(40)]
        silent[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
        url = f"https://127.0.0.1:{server.port}/metrics"
        assert httpx.get(url, verify=trusting(certificate)).text == "up 1\n"
        for client in silent:
            client.close()


def test_files_that_are_no_certificate_are_named(certificate: Certificate, tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.touch()
    for cert, key, problem in (
        (missing, None, "missing: cannot be read: No such file"),
        (certificate.file, missing, "missing: cannot be read: No such file"),
        (certificate.file, None, "no certificate with its key"),
        (empty, None, "no certificate with its key"),
        (tmp_path, None, "not a file"),
    ):
        with pytest.raises(ValueError, match=problem):
            server_context(cert, key)
    with pytest.raises(ValueError, match="empty: no certificates in PEM"):
        server_context(certificate.file, certificate.key, authorities=empty)
