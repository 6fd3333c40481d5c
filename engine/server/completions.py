"""POST /v1/completions: prompts as text or token ids, several at once."""

import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi import Request as HttpRequest
from fastapi.responses import Response

from engine.model.tokenizer import Tokenizer
from engine.request import Request
from engine.server.answer import Answer
from engine.server.dispatch import Dispatcher
from engine.server.encoding import encode_aside
from engine.server.errors import BadRequestError
from engine.server.generation import Piece
from engine.server.protocol import MAX_CHOICES, CompletionRequest
from engine.server.requests import RequestFactory, trace_id

DEFAULT_MAX_TOKENS = 16
"""The default of OpenAI's API and of vLLM."""


class CompletionWording:
    """OpenAI's `text_completion` objects."""

    def __init__(
        self, body: CompletionRequest, model: str, tokenizer: Tokenizer, request: Request
    ) -> None:
        self._body = body
        self._tokenizer = tokenizer
        self._sequences = request.sequences
        self._opened: set[int] = set()
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def opening(self, index: int) -> None:
        return None

    def chunk(self, index: int, piece: Piece) -> dict[str, Any]:
        return {**self._head, "choices": [self._choice(index, piece)]}

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Piece], usage: dict[str, Any]) -> dict[str, Any]:
        listed = [self._choice(index, piece) for index, piece in enumerate(choices)]
        return {**self._head, "choices": listed, "usage": usage}

    def _choice(self, index: int, piece: Piece) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "text": piece.text,
            "logprobs": self._logprobs(piece) if self._body.logprobs is not None else None,
            "finish_reason": piece.finish_reason,
        }
        if self._body.return_token_ids:
            choice["token_ids"] = [token.token_id for token in piece.tokens]
            if index not in self._opened:
                choice["prompt_token_ids"] = self._sequences[index].prompt
        self._opened.add(index)
        return choice

    def _logprobs(self, piece: Piece) -> dict[str, Any]:
        name = self._tokenizer.decode_token
        return {
            "tokens": [name(token.token_id) for token in piece.tokens],
            "token_logprobs": [token.logprob for token in piece.tokens],
            # Different tokens can read alike (halves of characters do): the likeliest stays.
            "top_logprobs": [
                {
                    name(token_id): logprob
                    for token_id, logprob in reversed(token.alternatives or ())
                }
                for token in piece.tokens
            ],
            "text_offset": piece.offsets,
        }


def completions_router(
    dispatcher: Dispatcher, tokenizer: Tokenizer, factory: RequestFactory, model: str
) -> APIRouter:
    """The endpoint over a running engine."""
    router = APIRouter()

    @router.post("/v1/completions")
    async def completions(
        body: CompletionRequest,
        http_request: HttpRequest,
        traceparent: Annotated[str | None, Header()] = None,
    ) -> Response:
        factory.check_model(body.model)
        prompts = await _prompts(body, tokenizer)
        wanted = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
        sampled = [
            (prompt, factory.sampling(body, len(prompt), wanted, body.logprobs))
            for prompt in prompts
        ]
        request = factory.build(body, sampled, trace_id(traceparent))
        wording = CompletionWording(body, model, tokenizer, request)
        answer = Answer(dispatcher, tokenizer, request, body.stop_strings, wording)
        return await answer.respond(http_request, stream=body.stream, usage=body.include_usage)

    return router


async def _prompts(body: CompletionRequest, tokenizer: Tokenizer) -> list[list[int]]:
    """Each prompt's token ids. The number of choices is checked before any text is encoded."""
    prompt = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if not prompt:
        raise BadRequestError("prompt", "prompt: must not be empty")
    token_ids = [item for item in prompt if isinstance(item, int)]
    if token_ids:
        return [token_ids]
    if len(prompt) * body.n > MAX_CHOICES:
        raise BadRequestError(
            "prompt",
            f"prompt: {len(prompt)} with n={body.n}, but a call has at most {MAX_CHOICES} choices",
        )
    return [
        await encode_aside(len(item), partial(tokenizer.encode, item))
        if isinstance(item, str)
        else item
        for item in prompt
        if not isinstance(item, int)
    ]
