"""Keys and passwords: `Authorization: Bearer KEY`, or Basic with the users of a web config."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from starlette.types import Scope

from kvscope_exporter.web.refusal import Refused

if TYPE_CHECKING:
    from kvscope_exporter.web.access.passwords import Passwords


def header(scope: Scope, name: bytes) -> bytes:
    """The header's only value; empty if it is missing, or given twice, so that no other reader can
    see a different one.
    """
    values = [value for key, value in scope["headers"] if key == name]
    return bytes(values[0]) if len(values) == 1 else b""


def has_header(scope: Scope, name: bytes) -> bool:
    return any(key == name for key, _ in scope["headers"])


CLIENT_CHARACTERS = 16
"""Digits of a key's digest, which names the client; it may be logged."""


class Credentials:
    """Admits clients with one of the keys or passwords."""

    def __init__(self, keys: Iterable[str] = (), users: Mapping[str, bytes] | None = None) -> None:
        """users: bcrypt hash by name. Give at least one key or user."""
        self._digests = [_digest(key.encode()) for key in keys]
        self._passwords = _passwords(users) if users else None
        assert self._digests or self._passwords is not None

    async def admit(self, scope: Scope) -> str | None:
        """The name of the client. Raises Refused."""
        scheme, _, value = header(scope, b"authorization").partition(b" ")
        value = value.strip()
        match scheme.lower():
            case b"bearer" if (client := self._client_of(value)) is not None:
                return client
            case b"basic" if self._passwords is not None:
                user, password = _user_and_password(value)
                address = (scope.get("client") or ("",))[0]
                if await self._passwords.match(user, password, address):
                    return f"user:{user.decode(errors='replace')}"
        raise Refused(401, self._message, {"WWW-Authenticate": self._challenge})

    def _client_of(self, key: bytes) -> str | None:
        """Takes the same time for every key, wherever it differs."""
        given = _digest(key)
        matches = [hmac.compare_digest(given, digest) for digest in self._digests]
        return f"key:{given.hex()[:CLIENT_CHARACTERS]}" if any(matches) else None

    @property
    def _message(self) -> str:
        if self._digests:
            return "missing or wrong API key: send 'Authorization: Bearer <key>'"
        return "missing or wrong user name or password"

    @property
    def _challenge(self) -> str:
        return "Bearer" if self._digests else 'Basic realm="kvscope", charset="UTF-8"'


def _passwords(users: Mapping[str, bytes]) -> "Passwords":
    from kvscope_exporter.web.access.passwords import Passwords  # bcrypt, which keys do not need

    return Passwords(users)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _user_and_password(value: bytes) -> tuple[bytes, bytes]:
    """Empty for invalid base64."""
    try:
        user, _, password = base64.b64decode(value, validate=True).partition(b":")
    except binascii.Error:
        return b"", b""
    return user, password
