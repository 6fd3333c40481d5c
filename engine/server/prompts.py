"""The prompts of a call: checks their form and length, and turns texts into tokens.

A list of token ids that exceeds the model's limit is refused by counting its commas. Texts become
tokens off the event loop if that takes long, and only as far as useful.
"""

import re
from collections.abc import Sequence
from functools import partial

import msgspec

from engine.model.tokenizer import Tokenizer
from engine.server.body import decode_part
from engine.server.clients import Workers
from engine.server.errors import BadRequestError, prompt_too_long
from engine.server.protocol import MAX_CHOICES, CompletionRequest, TokenId

_FORM = re.compile(rb'\s*(?:(?P<text>")|\[\s*(?:(?P<texts>")|(?P<id_lists>\[)|(?P<ids>[-\d\]])))')
_FORMS = "expected a text, a list of texts, a list of token ids, or a list of lists of token ids"

_text = msgspec.json.Decoder(str)
_texts = msgspec.json.Decoder(
    # A list that stops decoding at one element too many; `list` would collect them all first.
    msgspec.defstruct(
        "Texts",
        [(f"text_{index}", str, msgspec.UNSET) for index in range(MAX_CHOICES)],
        array_like=True,
        forbid_unknown_fields=True,
    )
)
_ids = msgspec.json.Decoder(list[TokenId])
_id_lists = msgspec.json.Decoder(list[list[TokenId]])


def prompts_of(body: CompletionRequest, limit: int) -> list[str] | list[list[int]]:
    """Each prompt, as text or token ids; at least one. limit: tokens of one sequence.

    Raises BadRequestError.
    """
    raw = bytes(body.prompt)
    form = _FORM.match(raw)
    prompts: list[str] | list[list[int]]
    match form and form.lastgroup:
        case "text":
            prompts = [decode_part(raw, _text, "prompt")]
        case "texts":
            texts = decode_part(raw, _texts, "prompt")
            prompts = [text for text in msgspec.structs.astuple(texts) if isinstance(text, str)]
        case "ids":
            ids = raw.count(b",") + 1
            if ids > limit:
                raise prompt_too_long("prompt", ids, limit)
            prompt = decode_part(raw, _ids, "prompt")
            prompts = [prompt] if prompt else []
        case "id_lists":
            _check_choices(raw.count(b"[") - 1, body.samples)
            ids = raw.count(b",") + 1
            if ids > limit * MAX_CHOICES:
                raise prompt_too_long("prompt", ids, limit * MAX_CHOICES)
            prompts = decode_part(raw, _id_lists, "prompt")
        case _:
            raise BadRequestError("prompt", f"prompt: {_FORMS}")
    if not prompts:
        raise BadRequestError("prompt", "prompt: must not be empty")
    _check_choices(len(prompts), body.samples)
    return prompts


def _check_choices(prompts: int, choices_each: int) -> None:
    if prompts * choices_each > MAX_CHOICES:
        raise BadRequestError(
            "prompt",
            f"prompt: {prompts} with {choices_each} samples each, but a call has at most "
            f"{MAX_CHOICES} choices",
        )


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
