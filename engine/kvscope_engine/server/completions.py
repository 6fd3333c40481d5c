"""POST /v1/completions: prompts as text or token ids, several at once."""

import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from fastapi import APIRouter
from fastapi import Request as HttpRequest
from fastapi.responses import Response

from kvscope_engine.request import Request
from kvscope_engine.server.answer import LATER, answer
from kvscope_engine.server.body import decode_body, prompts_of
from kvscope_engine.server.clients import client_of
from kvscope_engine.server.generation import Choice, Piece, logprobs_of
from kvscope_engine.server.logprobs import CompletionLogprobs, TokenNames
from kvscope_engine.server.protocol import CompletionRequest
from kvscope_engine.server.requests import Calls, caller_trace
from kvscope_engine.server.responses import Completion, generation_responses
from kvscope_engine.server.schemas import generation_request

_decoder = msgspec.json.Decoder(CompletionRequest)

DEFAULT_MAX_TOKENS = 16
"""The default of OpenAI's API and of vLLM."""


class CompletionWording:
    """OpenAI's `text_completion` objects."""

    def __init__(
        self, body: CompletionRequest, model: str, names: TokenNames, request: Request
    ) -> None:
        self._body = body
        self._names = names
        self._prompts = request.prompts
        self._opened: set[int] = set()
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def logprobs(self) -> CompletionLogprobs | None:
        return None if self._body.logprobs is None else CompletionLogprobs(self._names)

    def opening(self, index: int) -> None:
        return None

    def chunk(self, index: int, piece: Piece) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "text": piece.text,
            "logprobs": logprobs_of(piece, self.logprobs()),
            "finish_reason": piece.finish_reason,
        }
        if self._body.return_token_ids:
            choice["token_ids"] = [token.token_id for token in piece.tokens]
            if index not in self._opened:
                choice["prompt_token_ids"] = self._prompts[index // self._body.n].prompt
        self._opened.add(index)
        return {**self._head, "choices": [choice]}

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Choice], usage: dict[str, Any]) -> dict[str, Any]:
        listed = []
        for index, choice in enumerate(choices):
            described: dict[str, Any] = {
                "index": index,
                "text": choice.text,
                "logprobs": None if choice.logprobs is None else LATER,
                "finish_reason": choice.finish_reason,
            }
            if self._body.return_token_ids:
                described["token_ids"] = choice.token_ids
                described["prompt_token_ids"] = self._prompts[index // self._body.n].prompt
            listed.append(described)
        return {**self._head, "choices": listed, "usage": usage}


def completions_router(calls: Calls) -> APIRouter:
    """The endpoint of a running engine."""
    router = APIRouter()
    decode = partial(_decode, calls.limit)

    @router.post(
        "/v1/completions",
        openapi_extra=generation_request(CompletionRequest, calls.model),
        responses=generation_responses(Completion),
    )
    async def completions(http_request: HttpRequest) -> Response:
        factory = calls.factory
        with calls.limits.enter(client_of(http_request.scope)) as share:
            async with calls.reader.read(http_request, decode) as (body, given):
                factory.check_model(body.model)
                texts = [prompt for prompt in given if isinstance(prompt, str)]
                prompts = [prompt for prompt in given if not isinstance(prompt, str)]
                if texts:  # prompts have one form
                    prompts = await calls.encoder.encode(share.client, "prompt", texts)
                wanted = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
                sampled = [
                    (prompt, factory.sampling(body, len(prompt), wanted, body.logprobs))
                    for prompt in prompts
                ]
                request = factory.build(body, sampled, caller_trace(http_request))
                wording = CompletionWording(body, calls.model, calls.names, request)
            return await answer(calls, http_request, body, request, wording, share)

    return router


def _decode(
    limit: int, raw: bytes
) -> tuple[CompletionRequest, Sequence[str] | Sequence[list[int]]]:
    body = decode_body(raw, _decoder)
    prompts = prompts_of(body, limit)
    body.prompt = msgspec.Raw()  # would keep the bytes of the whole body
    return body, prompts
