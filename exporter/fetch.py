"""Fetches one document over HTTP: within a time for the whole of it, and a size after unpacking.

httpx limits each read, not the answer, and nothing limits a name server. So each attempt runs on a
thread of its own, is waited for until its time is over, and then has its connection shut down.
"""

import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import httpx

from exporter.fetch_error import FetchError, FetchErrorKind

MAX_BYTES = 64 << 20
"""A page of 600 series has 100 KB; a document much larger than that is not one."""
_CONNECTED = ("connection.connect_tcp.complete", "connection.start_tls.complete")


class Merged(Mapping[str, str]):
    """Headers, and others that go before them; each is looked up whenever it is read."""

    def __init__(self, defaults: Mapping[str, str], others: Mapping[str, str]) -> None:
        self._defaults = defaults
        self._others = others

    def __getitem__(self, name: str) -> str:
        return self._others[name] if name in self._others else self._defaults[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._defaults, *self._others)))

    def __len__(self) -> int:
        return len(list(iter(self)))


class Document(NamedTuple):
    body: bytes
    content_type: str
    is_framed: bool
    """The answer said where it ends, so that it is complete."""


class Fetcher:
    """One URL. At most one attempt exists at a time: while an abandoned one has not ended, because
    a name server holds it, the next fails at once."""

    def __init__(
        self,
        client: httpx.Client,
        url: str,
        *,
        headers: Mapping[str, str],
        max_bytes: int = MAX_BYTES,
        server_name: str | None = None,
    ) -> None:
        """The client must not follow redirects, which lead to other hosts.

        headers: read for each attempt; may raise FetchError. server_name: what the certificate of
        an https server must be for; None: the URL's host.
        """
        self._client = client
        self._url = url
        self._headers = headers
        self._server_name = server_name
        self._max_bytes = max_bytes
        self._former: _Attempt | None = None

    def fetch(self, timeout: float) -> Document:
        """Wait at most `timeout` seconds. Raises FetchError."""
        if self._former is not None and self._former.is_alive():
            raise FetchError("timeout", "the previous attempt has not ended")
        headers = {**self._headers, "Accept-Encoding": "gzip, identity"}
        attempt = _Attempt(
            self._client, self._url, headers, timeout, self._max_bytes, self._server_name
        )
        self._former = attempt
        attempt.start()
        attempt.join(timeout)
        if attempt.is_alive():
            attempt.abandon()
            raise FetchError("timeout", "did not end in time", answered=attempt.answered)
        return attempt.result()


class _Attempt(threading.Thread):
    def __init__(
        self,
        client: httpx.Client,
        url: str,
        headers: Mapping[str, str],
        timeout: float,
        max_bytes: int,
        server_name: str | None,
    ) -> None:
        super().__init__(name="kvscope-fetch", daemon=True)
        self.answered = False
        self._client = client
        self._url = url
        self._headers = headers
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._max_bytes = max_bytes
        self._server_name = server_name
        self._lock = threading.Lock()
        self._abandoned = False
        self._socket: socket.socket | None = None
        self._document: Document | None = None
        self._error: FetchError | None = None

    def run(self) -> None:
        try:
            self._document = self._read()
        except FetchError as error:
            error.answered = self.answered
            self._error = error
        except Exception as error:  # also what a library raises for an URL or an answer of nonsense
            self._error = _error_of(error, self.answered)

    def result(self) -> Document:
        if self._document is not None:
            return self._document
        assert self._error is not None, "it has ended"
        raise self._error

    def abandon(self) -> None:
        """Let the thread end: whatever it reads fails now."""
        with self._lock:
            self._abandoned = True
            _shut_down(self._socket)

    def _read(self) -> Document:
        extensions: dict[str, Any] = {"trace": self._note_socket}
        if self._server_name is not None:
            extensions["sni_hostname"] = self._server_name
        request = self._client.build_request(
            "GET", self._url, headers=self._headers, timeout=self._timeout, extensions=extensions
        )
        answer = self._client.send(request, stream=True, follow_redirects=False)
        try:
            self.answered = True
            if answer.is_redirect:
                where = answer.headers.get("location", "")[:200]
                raise FetchError(
                    "redirect", f"answered {answer.status_code}, a redirect to {where!r}"
                )
            if not answer.is_success:
                raise FetchError("status", f"answered {answer.status_code}")
            body = self._body(answer)
        finally:
            answer.close()
        framed = {"content-length", "transfer-encoding"} & answer.headers.keys()
        return Document(body, answer.headers.get("content-type", ""), bool(framed))

    def _body(self, answer: httpx.Response) -> bytes:
        unpack = _unpacker(answer.headers.get("content-encoding", ""))
        body = bytearray()
        for chunk in answer.iter_raw():
            body += unpack(chunk, self._max_bytes + 1 - len(body))
            if len(body) > self._max_bytes:
                size = self._max_bytes >> 20
                raise FetchError("too_large", f"is larger than {size} MiB: not a page of metrics")
            if time.monotonic() > self._deadline:
                raise FetchError("timeout", "did not end in time")
        if not unpack.is_complete:
            raise FetchError("truncated", "ended inside its compressed data")
        return bytes(body)

    def _note_socket(self, event: str, info: Mapping[str, Any]) -> None:
        if event not in _CONNECTED:
            return
        found = info["return_value"].get_extra_info("socket")
        with self._lock:
            self._socket = found
            if self._abandoned:
                _shut_down(found)


class _Plain:
    is_complete = True

    def __call__(self, chunk: bytes, room: int) -> bytes:
        return chunk[:room]


class _Gzip:
    """Unpacks no more than there is room for, so that a small answer cannot fill the memory."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    @property
    def is_complete(self) -> bool:
        return self._stream.eof and not self._stream.unused_data

    def __call__(self, chunk: bytes, room: int) -> bytes:
        if self._stream.eof:
            raise FetchError("encoding", "goes on after the end of its compressed data")
        return self._stream.decompress(chunk, room)


def _unpacker(encoding: str) -> _Plain | _Gzip:
    if encoding in ("", "identity"):
        return _Plain()
    if encoding in ("gzip", "x-gzip"):
        return _Gzip()
    raise FetchError("encoding", f"is encoded as {encoding[:40]!r}, which was not requested")


def _error_of(error: Exception, answered: bool) -> FetchError:
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < 8:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    kind: FetchErrorKind = "connection"
    if any(isinstance(c, socket.gaierror) for c in causes):
        kind = "dns"
    elif any(isinstance(c, ssl.SSLError) for c in causes):
        kind = "tls"
    elif isinstance(error, httpx.TimeoutException):
        kind = "timeout"
    elif isinstance(error, httpx.RemoteProtocolError):
        kind = "truncated" if answered else "protocol"
    elif isinstance(error, zlib.error):
        kind = "encoding"
    elif isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL | ValueError):
        kind = "url"
    return FetchError(kind, str(error) or type(error).__name__, answered=answered)


def _shut_down(connection: socket.socket | None) -> None:
    if connection is not None:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has been closed meanwhile
            return
