"""Fetches one document over HTTP, within a total time and a size after unpacking.

httpx limits each read, not the answer, and nothing limits a name server. So each attempt runs on a
thread of its own; once its time is over, its connection is shut down.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping

import httpx

from kvscope_exporter.fetch.attempt import Attempt, Reply, Request
from kvscope_exporter.fetch.error import FetchError

__all__ = ["MAX_BYTES", "Fetcher", "MergedHeaders", "Reply"]

MAX_BYTES = 32 << 20
"""A page of 600 series takes 100 KB, that of a Ray node with 30 replicas 10 MB."""
_POLL_SECONDS = 0.01
"""Interval at which an event loop checks whether an attempt has ended."""


class MergedHeaders(Mapping[str, str]):
    """Headers, and others that take precedence; each is looked up whenever it is read."""

    def __init__(self, defaults: Mapping[str, str], others: Mapping[str, str]) -> None:
        self._defaults = defaults
        self._others = others

    def __getitem__(self, name: str) -> str:
        return self._others[name] if name in self._others else self._defaults[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._defaults, *self._others)))

    def __len__(self) -> int:
        return len(list(iter(self)))


class Fetcher:
    """One URL. At most one attempt exists at a time: while an abandoned one has not ended, because
    a name server holds it, the next fails at once."""

    def __init__(
        self,
        client: httpx.Client,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes | None = None,
        max_bytes: int = MAX_BYTES,
        refusal_bytes: int = 0,
        server_name: str | None = None,
    ) -> None:
        """The client must not follow redirects, which lead to other hosts.

        headers: read for each attempt; may raise FetchError. content: body of a POST; None: a GET.
        refusal_bytes: bytes of a refusal's body to keep in the FetchError. server_name: expected
        name in the certificate of an https server; None: the URL's host.
        """
        self._client = client
        self._url = url
        self._headers = headers
        self._content = content
        self._max_bytes = max_bytes
        self._refusal_bytes = refusal_bytes
        self._server_name = server_name
        self._former: Attempt | None = None

    def fetch(self, timeout: float, query: str = "") -> Reply:
        """Wait at most `timeout` seconds. Raises FetchError.

        query: appended to the URL.
        """
        attempt = self._begin(timeout, query)
        attempt.join(timeout)
        return attempt.result()

    async def fetched(self, timeout: float) -> Reply:
        """The same on an event loop. A cancelled caller does not wait for the attempt to end."""
        attempt = self._begin(timeout)
        end = time.monotonic() + timeout
        try:
            while attempt.is_alive() and time.monotonic() < end:
                await asyncio.sleep(_POLL_SECONDS)
        except asyncio.CancelledError:
            attempt.end()
            raise
        return attempt.result()

    def _begin(self, timeout: float, query: str = "") -> Attempt:
        if self._former is not None and self._former.is_alive():
            raise FetchError("timeout", "the previous attempt has not ended")
        question = Request(
            url=self._url + query,
            headers={**self._headers, "Accept-Encoding": "gzip, identity"},
            content=self._content,
            max_bytes=self._max_bytes,
            refusal_bytes=self._refusal_bytes,
            server_name=self._server_name,
        )
        attempt = Attempt(self._client, question, timeout)
        self._former = attempt
        attempt.start()
        return attempt
