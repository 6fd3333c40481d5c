"""Fetches an answer at `/api/NAME` or a page of a kvscope; every failure is one line."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Generic, TypeVar
from urllib.parse import quote, urlencode

import httpx
import msgspec
import typer

from kvscope_engine.option import option
from kvscope_exporter.fetch.error import JSON_ERRORS, FetchError
from kvscope_exporter.fetch.fetch import Fetcher, Reply
from kvscope_exporter.paths import ANSWERS
from kvscope_exporter.scrape import Tls
from kvscope_exporter.web.access.keys import check_key, read_keys

TOKEN_VARIABLE = "KVSCOPE_TOKEN"
TargetName = Annotated[
    str, typer.Option(metavar="NAME", help="Server of a sidecar, if it watches several.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The key, the authorities and the patience with which a server is queried."""

    PANEL: ClassVar[str] = "Connection"
    token_file: Path | None = option(
        None, f"File with the bearer token to send. Default: ${TOKEN_VARIABLE}.", "FILE"
    )
    ca: Path | None = option(
        None, "Certificate authorities to trust for an https URL, in PEM.", "FILE"
    )
    seconds: float = option(
        10.0, "Time to wait for each answer.", "DURATION", flags=("--timeout",), least=0.1
    )

    @property
    def token(self) -> str | None:
        """Raises AnswerError."""
        try:
            if self.token_file is not None:
                return read_keys(self.token_file)[0]
            given = os.environ.get(TOKEN_VARIABLE)
            return check_key(given) if given else None
        except ValueError as error:
            place = TOKEN_VARIABLE if self.token_file is None else "--token-file"
            raise AnswerError(f"{place}: {error}") from None

    @property
    def headers(self) -> dict[str, str]:
        """Those of the token. Raises AnswerError."""
        token = self.token
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    def client(self, url: str) -> httpx.Client:
        """Sends the token with every request. Raises AnswerError."""
        try:
            found = Tls(ca=None if self.ca is None else str(self.ca)).client(url, self.seconds)
        except OSError as error:
            raise AnswerError(f"--ca {self.ca}: {error.strerror or error}") from None
        except (ValueError, httpx.InvalidURL) as error:
            raise AnswerError(f"{url}: {error}; expected http://HOST:PORT") from None
        found.headers.update(self.headers)
        return found


MAX_BYTES = 4 << 20
_REFUSAL_BYTES = 2048
_NO_SERVER = "no server "
"""The beginning of a refusal of a target that is not there."""
_MAX_REASON = 300
"""Characters kept of a server's message."""


T = TypeVar("T")


class AnswerError(Exception):
    """No answer; `str()` names the fault, the place and the remedy."""

    def __init__(
        self, problem: str, status: int | None = None, said: str = "", reason: str = ""
    ) -> None:
        super().__init__(problem)
        self.reason = reason
        """The fault alone."""
        self.status = status
        """Status code of a refusal."""
        self.said = said
        """The beginning of its text."""

    @property
    def is_text(self) -> bool:
        """Whether kvscope wrote a sentence for people; a path that it does not know has JSON."""
        return bool(self.said) and not self.said.startswith(("{", "<"))

    @property
    def is_unknown_server(self) -> bool:
        """Whether a kvscope answered that it has no server of the name that was asked for."""
        return self.status == 404 and self.said.startswith(_NO_SERVER)


class NothingKnownError(AnswerError):
    """The server answers, but knows no engine."""


class EngineAnswer(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    model_name: str = ""
    engine: str = ""
    answer: T | None = None
    unknown: str | None = None


class _Document(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    question: str
    engines: list[EngineAnswer[T]]
    unknown: str | None = None


class _Said(msgspec.Struct, frozen=True):
    message: str


class _Refusal(msgspec.Struct, frozen=True):
    error: _Said


def fetch(
    url: str,
    name: str,
    connection: Connection,
    *,
    target: str = "",
    content: bytes | None = None,
    max_bytes: int = MAX_BYTES,
) -> bytes:
    """The answer to the question of that name, undecoded. Raises AnswerError.

    content: JSON to post; None: a GET.
    """
    return fetch_document(
        url,
        f"{ANSWERS.path}{name}",
        connection,
        target=target,
        content=content,
        max_bytes=max_bytes,
    ).body


def fetch_document(
    url: str,
    path: str,
    connection: Connection,
    *,
    target: str = "",
    content: bytes | None = None,
    accept: str = "application/json",
    max_bytes: int = MAX_BYTES,
    query: Mapping[str, str] = MappingProxyType({}),
) -> Reply:
    """A document of that path, and its type. Raises AnswerError.

    query: besides the target.
    """
    place = f"{url.rstrip('/')}{path}"
    parameters = urlencode({**({"target": target} if target else {}), **query}, quote_via=quote)
    asked = f"{place}?{parameters}" if parameters else place
    headers = {"Accept": accept, "User-Agent": "kvscope"}
    if content is not None:
        headers["Content-Type"] = "application/json"
    with connection.client(url) as client:
        fetcher = Fetcher(
            client,
            asked,
            headers=headers,
            content=content,
            max_bytes=max_bytes,
            refusal_bytes=_REFUSAL_BYTES,
        )
        try:
            return fetcher.fetch(connection.seconds)
        except FetchError as error:
            raise AnswerError(
                f"{place}: {error}{_remedy(error)}", error.status, _said(error.body), str(error)
            ) from None


def decode(body: bytes, url: str, name: str, kind: type[T]) -> list[EngineAnswer[T]]:
    """One answer for each engine. kind: type of the answer. Raises AnswerError."""
    try:
        document = msgspec.json.decode(body, type=_Document[kind])  # type: ignore[valid-type]
    except JSON_ERRORS as error:
        reason = f"{error}"[:_MAX_REASON]
        raise AnswerError(
            f"{url}/api/{name}: not an answer of this version of kvscope: {reason}"
        ) from None
    if document.unknown is not None:
        raise NothingKnownError(f"{url}: nothing is known yet: {document.unknown}")
    return document.engines


def _message(body: bytes) -> str:
    """The message of a refusal in the format of OpenAI's API; empty if it has none."""
    try:
        return msgspec.json.decode(body, type=_Refusal).error.message[:_MAX_REASON]
    except JSON_ERRORS:
        return ""


def _said(body: bytes) -> str:
    return " ".join(body.decode(errors="replace").split())[:_MAX_REASON]


def _remedy(error: FetchError) -> str:
    said = _said(error.body)
    if error.status == 400 and said:
        return f": {said.replace('?target=', '--target ')}"
    if error.status == 404 and said.startswith(_NO_SERVER):
        return f": {said}; give its name with --target"
    if error.status == 404:
        return (
            ": no kvscope, or one older than this command; give the address of kvscope's own port, "
            "not of the server that it watches"
        )
    if error.status == 401:
        return ": it wants a token: --token-file FILE"
    if error.status == 403 and (message := _message(error.body)):
        return f": {message}"
    if error.status is None and not error.answered:
        return "; is a kvscope running there, and is this the right port?"
    said = _message(error.body) or said
    return f": {said}" if said else ""
