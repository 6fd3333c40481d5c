"""Errors of fetching a document from another server: a word of a closed set, and the reason."""

import os
import re
import socket
import ssl
from typing import Literal, NamedTuple, get_args

import msgspec

_NUMBER = re.compile(r"\[Errno -?\d+\] ")

JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Unexpected types, text that is not UTF-8, and unbounded nesting."""


FetchErrorKind = Literal[
    "url",
    "headers",
    "connection",
    "dns",
    "tls",
    "timeout",
    "status",
    "redirect",
    "protocol",
    "encoding",
    "truncated",
    "too_large",
]
FETCH_ERROR_KINDS: tuple[FetchErrorKind, ...] = get_args(FetchErrorKind)


class Failure(NamedTuple):
    """The reason why there is no document; can be kept, unlike an exception with its frames."""

    kind: FetchErrorKind
    reason: str
    """Without the URL."""
    answered: bool = False
    """Whether something answered at the URL, though not with a document."""
    status: int | None = None
    """Status code of a refusal."""
    body: bytes = b""
    """The first bytes of a refusal, if requested."""

    def error(self) -> "FetchError":
        return FetchError(*self)


class FetchError(Exception):
    """No document; the message is the reason."""

    def __init__(
        self,
        kind: FetchErrorKind,
        reason: str,
        answered: bool = False,
        status: int | None = None,
        body: bytes = b"",
    ) -> None:
        super().__init__(reason)
        self.failure = Failure(kind, reason, answered, status, body)

    @property
    def kind(self) -> FetchErrorKind:
        return self.failure.kind

    @property
    def answered(self) -> bool:
        return self.failure.answered

    @property
    def status(self) -> int | None:
        return self.failure.status

    @property
    def body(self) -> bytes:
        return self.failure.body


def plain_reason(error: BaseException) -> str:
    """The operating system's text without its number, else the error's own."""
    cause: BaseException | None = error
    for _ in range(8):
        if isinstance(cause, OSError) and cause.strerror and not isinstance(cause, ssl.SSLError):
            is_named = isinstance(cause, socket.gaierror) or not cause.errno
            return cause.strerror if is_named else os.strerror(cause.errno or 0)
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        elif cause is not None:
            cause = cause.__cause__ or cause.__context__
    return _NUMBER.sub("", str(error)) or "the connection failed"
