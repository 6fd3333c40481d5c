"""Errors of fetching a document from another server: a word of a closed set, and the reason."""

from typing import Literal, get_args

import msgspec

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


class FetchError(Exception):
    """No document; the message is the reason, without the URL."""

    def __init__(
        self,
        kind: FetchErrorKind,
        reason: str,
        *,
        answered: bool = False,
        status: int | None = None,
        body: bytes = b"",
    ) -> None:
        super().__init__(reason)
        self.kind = kind
        self.answered = answered
        """Whether something answered at the URL, though not with a document."""
        self.status = status
        """Status code of a refusal."""
        self.body = body
        """The first bytes of a refusal, if requested."""
