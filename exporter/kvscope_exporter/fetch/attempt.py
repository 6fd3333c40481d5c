"""One attempt to fetch a document, on a thread that its caller can abandon."""

import socket
import ssl
import threading
import time
import traceback
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx

from kvscope_exporter.fetch.address import address_problem
from kvscope_exporter.fetch.error import Failure, FetchError, FetchErrorKind, plain_reason
from kvscope_exporter.fetch.unpacking import unpacker

MAX_REASON = 300
"""Characters kept of a library's message, which may quote the answer."""
_PART = 206
"""Status of a part of a document, for which we never ask."""
_CONNECTED = ("connection.connect_tcp.complete", "connection.start_tls.complete")


class Reply(NamedTuple):
    body: bytes
    content_type: str
    is_framed: bool
    """Whether the answer declared its end, so that it is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request, and limits for its answer."""

    url: str
    headers: Mapping[str, str]
    content: bytes | None
    """Body of a POST; None: a GET."""
    max_bytes: int
    """Maximum size of a document in bytes, after unpacking."""
    refusal_bytes: int
    """Bytes to read from the body of an error response."""
    server_name: str | None


class Attempt(threading.Thread):
    """Reads for at most `seconds` from its start; it ends with a result, or a failure.

    It keeps no exception: a traceback holds the frames that it went through, those frames the page
    as far as it was read and this attempt, and this attempt the exception.
    """

    def __init__(self, client: httpx.Client, question: Request, seconds: float) -> None:
        super().__init__(name="kvscope-fetch", daemon=True)
        self.answered = False
        self._client = client
        self._question = question
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._abandoned = False
        self._socket: socket.socket | None = None
        self._document: Reply | None = None
        self._failure: Failure | None = None

    def run(self) -> None:
        try:
            document = self._read()
            with self._lock:
                if not self._abandoned:  # else it would never be taken
                    self._document = document
        except FetchError as error:
            # Once a refusal is known, its status says more than an error in its body.
            self._failure = self._failure or error.failure._replace(answered=self.answered)
        except Exception as error:  # libraries raise anything for nonsense
            self._failure = self._failure or _failure_of(error, self.answered)
            # Libraries make cycles of their own with it, and one of its frames has the page.
            traceback.clear_frames(error.__traceback__)

    def result(self) -> Reply:
        """The result so far, once; one that has not ended is abandoned. Raises FetchError."""
        if self.is_alive():
            late = Failure("timeout", "did not end in time", answered=self.answered)
            known = self._failure or late  # before its connection breaks, a failure as well
            self.end()
            raise known.error()
        document, self._document = self._document, None
        if document is not None:
            return document
        assert self._failure is not None, "it has ended"
        raise self._failure.error()

    def end(self) -> None:
        """Make the thread end: whatever it reads fails now. Does not wait for it."""
        with self._lock:
            self._abandoned = True
            _shut_down(self._socket)

    def _read(self) -> Reply:
        asked = self._question
        if problem := address_problem(httpx.URL(asked.url)):
            raise FetchError("url", problem)
        extensions: dict[str, Any] = {"trace": self._note_socket}
        if asked.server_name is not None:
            extensions["sni_hostname"] = asked.server_name
        request = self._client.build_request(
            "GET" if asked.content is None else "POST",
            asked.url,
            content=asked.content,
            headers=asked.headers,
            timeout=self._seconds,
            extensions=extensions,
        )
        answer = self._client.send(request, stream=True, follow_redirects=False)
        try:
            self.answered = True
            if not answer.is_success or answer.status_code == _PART:
                self._refuse(answer)
            body = self._body(answer, asked.max_bytes, is_cut=False)
        finally:
            answer.close()
        framed = {"content-length", "transfer-encoding"} & answer.headers.keys()
        return Reply(body, answer.headers.get("content-type", ""), bool(framed))

    def _refuse(self, answer: httpx.Response) -> None:
        """Raises FetchError."""
        status = answer.status_code
        if answer.is_redirect:
            where = answer.headers.get("location", "")[:200]
            reason = f"answered {status}, a redirect to {where!r}"
            raise FetchError("redirect", reason, status=status)
        refusal = Failure("status", f"answered {status}", answered=True, status=status)
        self._failure = refusal  # known from here on, whatever happens to the body
        if self._question.refusal_bytes:
            body = self._body(answer, self._question.refusal_bytes, is_cut=True)
            self._failure = refusal._replace(body=body)
        raise self._failure.error()

    def _body(self, answer: httpx.Response, max_bytes: int, *, is_cut: bool) -> bytes:
        """is_cut: cut the body at the limit, without an error."""
        unpack = unpacker(answer.headers.get("content-encoding", ""))
        too_large = Failure("too_large", f"is larger than {_size(max_bytes)}")
        if not is_cut and _declared(answer) > max_bytes:
            raise too_large.error()
        body = bytearray()
        for chunk in answer.iter_raw():
            body += unpack(chunk, max_bytes + 1 - len(body))
            if len(body) > max_bytes:
                if is_cut:
                    return bytes(body[:max_bytes])
                raise too_large.error()
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


def _size(num_bytes: int) -> str:
    return f"{num_bytes >> 20} MiB" if num_bytes >= 1 << 20 else f"{num_bytes} bytes"


def _declared(answer: httpx.Response) -> int:
    """Bytes of the body before unpacking, as far as the answer says."""
    text = answer.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _failure_of(error: Exception, answered: bool) -> Failure:
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
    reason = plain_reason(error)[:MAX_REASON]
    return Failure(kind, reason, answered=answered)


def _shut_down(connection: socket.socket | None) -> None:
    if connection is not None:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:  # already closed
            return
