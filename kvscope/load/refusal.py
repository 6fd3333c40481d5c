"""Why a server refused: the beginning of its answer, read within a time."""

import asyncio
from collections.abc import AsyncIterator

import msgspec

from engine.one_line import quoted
from exporter.fetch.json_errors import JSON_ERRORS

MAX_REFUSAL_BYTES = 4096
"""Read of the body of an answer that is no success; the rest is never waited for."""
MAX_REFUSAL_SECONDS = 5.0
"""Waited for that body; the status, which has come by then, counts more."""


async def read_refusal(stream: AsyncIterator[bytes]) -> bytes:
    """The first MAX_REFUSAL_BYTES, or what comes in MAX_REFUSAL_SECONDS; the rest is not read."""
    body = b""
    try:
        async with asyncio.timeout(MAX_REFUSAL_SECONDS):
            async for received in stream:
                body += received
                if len(body) >= MAX_REFUSAL_BYTES:
                    break
    except TimeoutError:
        return body
    return body[:MAX_REFUSAL_BYTES]


def error_detail(body: bytes) -> str:
    """OpenAI's error message, or the first bytes of the body; one line of bounded length."""
    try:
        return quoted(msgspec.json.decode(body, type=_ErrorBody).error.message)
    except JSON_ERRORS:
        return quoted(body.decode(errors="replace"))


class _Error(msgspec.Struct):
    message: str


class _ErrorBody(msgspec.Struct):
    error: _Error
