"""Text to tokens, off the event loop if that takes long, and only as far as useful."""

from collections.abc import Sequence
from functools import partial

from engine.model.tokenizer import Tokenizer
from engine.server.errors import prompt_too_long
from engine.server.workers import Workers

SHORT_TEXT = 8192
"""Characters encoded on the event loop, in a few milliseconds; a thread takes 0.1 ms to start."""
LONG_TEXT = 256 * 2**10
"""Characters above which tokens are counted first: an encoded token takes about 100 bytes."""
_SPLIT_TOKENS = 8
"""Extra tokens that two halves of a text can have over the whole."""


class Encoder:
    """Encodes prompts for calls. limit: tokens of one sequence."""

    def __init__(self, tokenizer: Tokenizer, workers: Workers, limit: int) -> None:
        self._tokenizer = tokenizer
        self._workers = workers
        self._limit = limit

    async def encode(
        self, client: str, field: str, texts: Sequence[str], *, special_tokens: bool = True
    ) -> list[list[int]]:
        """The token ids of each text. Raises BusyError, or BadRequestError if they cannot fit."""
        work = partial(self._encode_all, field, texts, special_tokens)
        if sum(map(len, texts)) <= SHORT_TEXT:
            return work()
        return await self._workers.run(client, work)

    async def decode(self, client: str, prompts: Sequence[list[int]]) -> list[str]:
        """The text of each list of token ids, special tokens left out. Raises BusyError."""
        work = partial(self._decode_all, prompts)
        if sum(map(len, prompts)) <= SHORT_TEXT:
            return work()
        return await self._workers.run(client, work)

    def _decode_all(self, prompts: Sequence[list[int]]) -> list[str]:
        return [self._tokenizer.decode(prompt) for prompt in prompts]

    def _encode_all(
        self, field: str, texts: Sequence[str], special_tokens: bool
    ) -> list[list[int]]:
        encoded = []
        for text in texts:
            if len(text) > LONG_TEXT:
                self._refuse_if_too_long(field, text)
            encoded.append(self._tokenizer.encode(text, special_tokens=special_tokens))
        return encoded

    def _refuse_if_too_long(self, field: str, text: str) -> None:
        counted = 0
        for begin in range(0, len(text), LONG_TEXT):
            part = text[begin : begin + LONG_TEXT]
            counted += self._tokenizer.count(part) - _SPLIT_TOKENS
            if counted > self._limit:
                raise prompt_too_long(field, counted, self._limit, at_least=True)
