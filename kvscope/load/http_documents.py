"""The documents that `kvscope load` asks a server for, fetched as every document is."""

from collections.abc import Mapping

import httpx

from exporter.fetch.error import FetchError
from exporter.fetch.fetch import Fetcher
from kvscope.load import Document, DocumentError

REFUSAL_BYTES = 4096
"""Read of the body of a refusal, which may say why."""


class FetchedDocuments:
    """One connection for each document; a client for all of them."""

    def __init__(self) -> None:
        """Raises ValueError or httpx.InvalidURL for a proxy in the environment that is none."""
        self._client = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0))

    async def fetch(
        self, url: str, *, headers: Mapping[str, str], content: bytes | None, seconds: float
    ) -> Document:
        """As the port says. Raises DocumentError."""
        fetcher = Fetcher(
            self._client, url, headers=headers, content=content, refusal_bytes=REFUSAL_BYTES
        )
        try:
            document = await fetcher.fetched(seconds)
        except FetchError as error:
            if error.status is None:
                raise DocumentError(str(error)) from error
            return Document(error.status, error.body)
        return Document(200, document.body)
