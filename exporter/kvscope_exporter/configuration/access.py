"""Access to a server besides its URL: headers, some of them in files, and TLS."""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kvscope_exporter.configuration.error import ConfigurationError
from kvscope_exporter.configuration.model import FileValue, ServerConfig, TlsConfig
from kvscope_exporter.fetch.error import FetchError
from kvscope_exporter.files.foreign import read_small
from kvscope_exporter.scrape.tls import Tls

MAX_VALUE_BYTES = 16 << 10
"""Maximum size of one header in bytes: servers refuse larger ones."""
MAX_HEADERS = 32
MAX_FILE_BYTES = 4 << 20
"""Maximum size of a named file in bytes; all of a system's authorities take a quarter of it."""
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE = re.compile(r"[\x20-\x7e\t]*")
_OURS = frozenset(
    ("accept", "accept-encoding", "connection", "content-length", "host", "transfer-encoding")
)
"""Headers that belong to the request itself; a different value would break it."""


def header_values(headers: Mapping[str, str | FileValue]) -> dict[str, str]:
    """The headers to send now. Raises ConfigurationError with a path such as `headers.X-Key`."""
    if len(headers) > MAX_HEADERS:
        raise ConfigurationError("headers", f"over {MAX_HEADERS} headers", "leave some out")
    values: dict[str, str] = {}
    for name, value in headers.items():
        path = f"headers.{name}"
        if _NAME.fullmatch(name) is None:
            raise ConfigurationError(path, "not the name of a header", "use letters and -")
        if name.lower() in _OURS:
            raise ConfigurationError(path, "this header is kvscope's own", "leave it out")
        if name.lower() in (known.lower() for known in values):
            raise ConfigurationError(path, "given twice", "keep one")
        text = _line_of(path, value.file) if isinstance(value, FileValue) else value
        if _VALUE.fullmatch(text) is None or text != text.strip():
            problem = "the value has a line break, a space at an end, or a character beyond ASCII"
            raise ConfigurationError(path, problem, "write one line of plain text")
        values[name] = text
    return values


class LiveHeaders(Mapping[str, str]):
    """The headers of a server; those in files are read at each access. Raises FetchError."""

    def __init__(self, headers: Mapping[str, str | FileValue]) -> None:
        self._headers = dict(headers)

    def __getitem__(self, name: str) -> str:
        try:
            return header_values({name: self._headers[name]})[name]
        except ConfigurationError as error:
            raise FetchError("headers", error.problem) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)


def tls_of(tls: TlsConfig | None) -> Tls:
    """The TLS settings in the form that a page reader takes."""
    return Tls() if tls is None else Tls(**msgspec.structs.asdict(tls))


def check_tls(tls: TlsConfig | None) -> None:
    """Raises ConfigurationError with a path such as `tls.ca`."""
    tls = tls or TlsConfig()
    if tls.key is not None and tls.cert is None:
        raise ConfigurationError("tls.key", "a key without a certificate", "add `cert:`")
    if not tls.verify and (tls.ca is not None or tls.server_name is not None):
        problem = "nothing is verified, so that ca and server_name have no effect"
        raise ConfigurationError("tls.verify", problem, "leave `verify: false` out, or those")
    if tls.ca is not None:
        with _reading("tls.ca", tls.ca, "name a file of certificates in PEM"):
            tls_of(TlsConfig(ca=tls.ca)).context()
    if tls.cert is not None:
        with _reading("tls.cert", tls.cert, "name a certificate and its key in PEM"):
            tls_of(TlsConfig(cert=tls.cert, key=tls.key)).context()


def tls_digest(server: ServerConfig) -> str:
    """A digest that changes with the content of the files named by `tls`; empty without any."""
    tls = server.tls
    files = [] if tls is None else [file for file in (tls.ca, tls.cert, tls.key) if file]
    digest = hashlib.sha256()
    for file in files:
        try:
            digest.update(read_small(Path(file), MAX_FILE_BYTES))
        except OSError as error:
            digest.update(repr(error.errno).encode())
    return digest.hexdigest() if files else ""


@contextmanager
def _reading(path: str, file: str, remedy: str) -> Iterator[None]:
    """Turns file errors into configuration errors; refuses anything but a small file."""
    try:
        found = os.stat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_BYTES:
            problem = f"{file} is not a regular file, or larger than {MAX_FILE_BYTES >> 20} MiB"
            raise ConfigurationError(path, problem, remedy)
        yield
    except OSError as error:  # ssl.SSLError is one
        problem = f"{file} cannot be used: {error.strerror or error}"
        raise ConfigurationError(path, problem, remedy) from None


def _line_of(path: str, file: str) -> str:
    with _reading(path, file, "name a file with one line"):
        content = read_small(Path(file), MAX_VALUE_BYTES)
    if len(content) > MAX_VALUE_BYTES:
        problem = f"{file} is larger than {MAX_VALUE_BYTES >> 10} KiB"
        raise ConfigurationError(path, problem, "name a file with one line")
    return content.decode(errors="replace").strip()
