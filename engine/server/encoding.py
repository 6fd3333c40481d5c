"""Text to tokens, off the event loop where that takes long, so that other streams go on."""

import asyncio
from collections.abc import Callable

SHORT_TEXT = 8192
"""Characters encoded on the event loop, in a few milliseconds; a thread takes 0.1 ms to start."""


async def encode_aside(size: int, encode: Callable[[], list[int]]) -> list[int]:
    """The result of `encode`, from a worker thread if the text has more than a few characters."""
    return encode() if size <= SHORT_TEXT else await asyncio.to_thread(encode)
