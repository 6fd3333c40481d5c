"""Reads the body of a request: how much all of them may hold, and where it is decoded."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from fastapi import Request as HttpRequest

from engine.server.decoding import NO_OBJECT
from engine.server.errors import BadRequestError
from engine.server.workers import BusyError, Workers, client_of

SMALL_BODY = 64 * 2**10
"""Bytes that are decoded on the event loop, in 0.3 ms; a thread takes 0.1 ms to start."""
MAX_BYTES_HELD = 64 * 2**20
"""Bytes that the larger bodies of all clients may hold together until their prompts are tokens."""

_T = TypeVar("_T")


class BodyReader:
    """Reads and decodes. Small bodies always pass; larger ones share memory and threads."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._held = 0

    @asynccontextmanager
    async def read(
        self, http_request: HttpRequest, decode: Callable[[bytes], _T]
    ) -> AsyncIterator[_T]:
        """The decoded body; its memory counts as held until the context ends.

        Raises BusyError when larger bodies hold too much already, BadRequestError for another type
        of content, ClientDisconnect, and what `decode` raises.
        """
        if not _is_json(http_request.headers.get("content-type", "")):
            raise BadRequestError(None, NO_OBJECT)
        chunks: list[bytes] = []
        size = held = 0
        try:
            async for chunk in http_request.stream():
                chunks.append(chunk)
                size += len(chunk)
                if size > SMALL_BODY:
                    self._held += size - held
                    held = size
                    if self._held > MAX_BYTES_HELD:
                        raise BusyError
            work = partial(decode, b"".join(chunks))
            chunks.clear()
            if size <= SMALL_BODY:
                decoded = work()
            else:
                decoded = await self._workers.run(client_of(http_request.scope), work)
            del work  # and with it the bytes
            yield decoded
        finally:
            self._held -= held


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )
