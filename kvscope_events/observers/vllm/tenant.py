"""Tenants of an API server's requests, where clients name themselves: in a header, or as `user`.

vLLM passes neither to its engine. Nothing is read unless the environment names the place.
"""

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from kvscope_events.observers.vllm.answer import Answer
from kvscope_events.tenants import tenant_digest

TENANT_VARIABLE = "KVSCOPE_OBSERVER_TENANT"
"""`user`, a field of the request's body, or the name of a header."""
BODY_FIELD = "user"
MAX_BODY_BYTES = 4 << 20
"""A request with a longer body names no tenant."""


class _Body(msgspec.Struct):
    """The part of a body that is decoded."""

    user: str | None = None


_DECODER = msgspec.json.Decoder(_Body)


class TenantPlace:
    """The place where clients name themselves, as configured."""

    def __init__(self) -> None:
        name = os.environ.get(TENANT_VARIABLE, "").strip().lower()
        self._in_body = name == BODY_FIELD
        self._header = b"" if self._in_body else name.encode()

    def asked(self, answer: Answer, scope: Mapping[str, Any]) -> "Body | None":
        """Note the header's tenant; the reader of the body, if it names the tenant."""
        if self._header:
            answer.tenant = tenant_digest(dict(scope.get("headers") or ()).get(self._header))
        return Body(answer) if self._in_body and answer.generates else None


class Body:
    """A request's body, as its parts are received."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._parts: list[bytes] = []
        self._bytes = 0

    def received(self, message: Mapping[str, Any]) -> None:
        """The application is about to get a message of its client."""
        if message["type"] != "http.request" or self._bytes > MAX_BODY_BYTES:
            return
        part = message.get("body", b"")
        self._parts.append(part)
        self._bytes += len(part)
        if self._bytes > MAX_BODY_BYTES:
            self._parts.clear()
        elif not message.get("more_body", False):
            self._answer.tenant = tenant_digest(_user(b"".join(self._parts)))
            self._parts.clear()


def _user(body: bytes) -> str | None:
    """None also for bodies that are refused or nested too deep, and for forms with audio."""
    try:
        return _DECODER.decode(body).user
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
