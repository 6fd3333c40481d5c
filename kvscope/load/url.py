"""Whether a URL can be asked at all: checked before the run, so that a wrong one costs one line."""

import httpx

_MAX_LENGTH = 2048
_MAX_PORT = 65535


def check_url(name: str, url: str) -> None:
    """Raises ValueError, which begins with `name`."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{name} must begin with http:// or https://, got {url[:80]!r}")
    if len(url) > _MAX_LENGTH:
        raise ValueError(f"{name} has {len(url)} characters, more than {_MAX_LENGTH}")
    try:
        parts = httpx.URL(url)
        host = parts.raw_host.decode()
        host.encode("idna")  # as the resolver does: no empty label, and none of over 63 characters
    except (httpx.InvalidURL, ValueError) as error:  # ValueError: of codecs, and of addresses
        raise ValueError(f"{name} {url!r}: {error}") from None
    if not host:
        raise ValueError(f"{name} {url!r}: it names no host")
    if parts.port is not None and not 0 < parts.port <= _MAX_PORT:
        raise ValueError(f"{name} {url!r}: port {parts.port} is not between 1 and {_MAX_PORT}")
