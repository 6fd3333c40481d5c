"""Requests of a web page in an operator's browser: it must not reach a route that changes
something."""

from tools.chaos.target import NotHeldError, Target, request, status_of

_ROUTES = ("/reset_prefix_cache", "/api/gpu/release", "/api/gpu/resume")
_FORM = "Content-Type: text/plain\r\n"
_FOREIGN = "Origin: http://evil.example\r\n"


def cross_site(target: Target) -> None:
    """POSTs with another page's Origin, as a form, and with another site's Host."""
    while True:
        for port in (target.api_port, target.metrics_port):
            for route in _ROUTES:
                if target.over:
                    return
                _expect_refused(target, port, request("POST", route, b"{}", headers=_FOREIGN))
                _expect_refused(target, port, request("POST", route, b"", headers=_FORM))
                own = request("POST", route, b"{}")
                rebound = own.replace(b"Host: 127.0.0.1", b"Host: evil.example")
                _expect_refused(target, port, rebound)
        target.wait(0.1)


def _expect_refused(target: Target, port: int, message: bytes) -> None:
    status = status_of(target.send(message, port))
    if 200 <= status < 300:
        raise NotHeldError(f"{message.splitlines()[0].decode()} was answered {status}")
