"""Headers of an ASGI request."""

from starlette.types import Scope


def header(scope: Scope, name: bytes) -> bytes:
    """Its only value; empty if it is missing, or given twice, so that no other reader can see a
    different one.
    """
    values = [value for key, value in scope["headers"] if key == name]
    return bytes(values[0]) if len(values) == 1 else b""


def has_header(scope: Scope, name: bytes) -> bool:
    return any(key == name for key, _ in scope["headers"])
