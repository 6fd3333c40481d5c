"""JSON answers of any length: long ones are sent in slices, and never joined into one piece."""

from collections.abc import Iterator
from typing import Any

import msgspec
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

SLICE_BYTES = 256 * 2**10
"""Bytes sent at once; between two slices the event loop serves others."""

LATER = msgspec.Raw(b"\0")
"""Placeholder for a value whose JSON is given in parts: no JSON contains this byte."""


def json_response(body: object, parts: list[list[bytes]] | None = None) -> Response:
    """The answer. parts: the JSON of each `LATER` in it, in order."""
    encoded = msgspec.json.encode(body)
    if not parts:
        return Response(encoded, media_type="application/json")
    first, *others = encoded.split(LATER)
    whole = [first]
    for inserted, after in zip(parts, others, strict=True):
        whole += inserted
        whole.append(after)
    return _Slices(whole)


class _Slices(Response):
    """A JSON body in parts."""

    def __init__(self, parts: list[bytes]) -> None:
        length = {"content-length": str(sum(map(len, parts)))}
        super().__init__(None, headers=length, media_type="application/json")
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: dict[str, Any] = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        await send(start)
        for slice_ in self._slices():
            await send({"type": "http.response.body", "body": slice_, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _slices(self) -> Iterator[bytes]:
        gathered: list[bytes] = []
        size = 0
        for part in self._parts:
            gathered.append(part)
            size += len(part)
            if size >= SLICE_BYTES:
                yield b"".join(gathered)
                gathered, size = [], 0
        if gathered:
            yield b"".join(gathered)
