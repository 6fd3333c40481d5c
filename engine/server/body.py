"""Reads request bodies: limits the size of each and of all together, and decodes them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from fastapi import Request as HttpRequest
from starlette.exceptions import HTTPException

from engine.server.decoding import NO_OBJECT
from engine.server.errors import BadRequestError
from engine.server.workers import BusyError, Workers, client_of

SMALL_BODY = 64 * 2**10
"""Bytes that are decoded on the event loop, in 0.3 ms; a thread takes 0.1 ms to start."""
MAX_BYTES_HELD = 64 * 2**20
"""Bytes that larger bodies of all clients may hold together until their prompts are tokens."""

_T = TypeVar("_T")


class BodyReader:
    """Reads and decodes. Small bodies always pass; larger ones share memory and threads."""

    def __init__(self, workers: Workers, max_bytes: int) -> None:
        """max_bytes: of one body; decoding a long one holds up every other request."""
        self._workers = workers
        self._max_bytes = max_bytes
        self._held = 0

    @asynccontextmanager
    async def read(
        self, http_request: HttpRequest, decode: Callable[[bytes], _T]
    ) -> AsyncIterator[_T]:
        """The decoded body; its memory counts as held until the context ends.

        Raises HTTPException with 413 for a body over the limit, announced or not, BusyError when
        larger bodies hold too much already, BadRequestError for another type of content,
        ClientDisconnect, and what `decode` raises.
        """
        if not _is_json(http_request.headers.get("content-type", "")):
            raise BadRequestError(None, NO_OBJECT)
        announced = http_request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self._max_bytes:
            raise self._too_large()
        chunks: list[bytes] = []
        size = held = 0
        try:
            async for chunk in http_request.stream():
                chunks.append(chunk)
                size += len(chunk)
                if size > self._max_bytes:
                    raise self._too_large()
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
            del work  # and the bytes with it
            yield decoded
        finally:
            self._held -= held

    def _too_large(self) -> HTTPException:
        """The rest of the body is never read, so the connection cannot be used again."""
        return HTTPException(
            413, f"the body is over {self._max_bytes} bytes", {"Connection": "close"}
        )


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )
