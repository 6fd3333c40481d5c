"""POST /v1/chat/completions: a conversation, through the model's chat template."""

import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from fastapi import APIRouter
from fastapi import Request as HttpRequest
from fastapi.responses import Response

from kvscope_engine.model.chat_template import ChatTemplateError, Message
from kvscope_engine.request import Request
from kvscope_engine.server.answer import LATER, answer
from kvscope_engine.server.body import decode_body
from kvscope_engine.server.clients import client_of
from kvscope_engine.server.errors import BadRequestError
from kvscope_engine.server.generation import Choice, Piece, logprobs_of
from kvscope_engine.server.logprobs import ChatLogprobs, TokenNames
from kvscope_engine.server.protocol import ChatCompletionRequest
from kvscope_engine.server.requests import Calls, caller_trace
from kvscope_engine.server.responses import ChatCompletion, generation_responses
from kvscope_engine.server.schemas import generation_request

_decoder = msgspec.json.Decoder(ChatCompletionRequest)


class ChatWording:
    """OpenAI's `chat.completion` objects."""

    def __init__(
        self,
        body: ChatCompletionRequest,
        model: str,
        names: TokenNames,
        request: Request,
    ) -> None:
        self._body = body
        self._names = names
        self._prompt = request.sequences[0].prompt
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": model,
        }
        self._chunk_head = {**self._head, "object": "chat.completion.chunk"}

    def logprobs(self) -> ChatLogprobs | None:
        return ChatLogprobs(self._names) if self._body.logprobs else None

    def opening(self, index: int) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        chunk: dict[str, Any] = {**self._chunk_head, "choices": [choice]}
        if self._body.return_token_ids:
            chunk["prompt_token_ids"] = self._prompt
        return chunk

    def chunk(self, index: int, piece: Piece) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "delta": {"content": piece.text},
            "logprobs": logprobs_of(piece, self.logprobs()),
            "finish_reason": piece.finish_reason,
        }
        if self._body.return_token_ids:
            choice["token_ids"] = [token.token_id for token in piece.tokens]
        return {**self._chunk_head, "choices": [choice]}

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        return {**self._chunk_head, "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Choice], usage: dict[str, Any]) -> dict[str, Any]:
        listed = []
        for index, choice in enumerate(choices):
            message = {"role": "assistant", "content": choice.text}
            described: dict[str, Any] = {
                "index": index,
                "message": message,
                "logprobs": None if choice.logprobs is None else LATER,
                "finish_reason": choice.finish_reason,
            }
            if self._body.return_token_ids:
                described["token_ids"] = choice.token_ids
            listed.append(described)
        answer: dict[str, Any] = {**self._head, "choices": listed, "usage": usage}
        if self._body.return_token_ids:
            answer["prompt_token_ids"] = self._prompt
        return answer


def chat_router(calls: Calls) -> APIRouter:
    """The endpoint of a running engine."""
    router = APIRouter()

    @router.post(
        "/v1/chat/completions",
        openapi_extra=generation_request(ChatCompletionRequest, calls.model),
        responses=generation_responses(ChatCompletion, 501),
    )
    async def chat_completions(http_request: HttpRequest) -> Response:
        factory = calls.factory
        with calls.limits.enter(client_of(http_request.scope)) as share:
            async with calls.reader.read(http_request, _decode) as (body, messages):
                factory.check_model(body.model)
                prompt = await _prompt(calls, share.client, messages)
                wanted = body.max_completion_tokens or body.max_tokens
                logprobs = (body.top_logprobs or 0) if body.logprobs else None
                sampling = factory.sampling(body, len(prompt), wanted, logprobs)
                request = factory.build(body, [(prompt, sampling)], caller_trace(http_request))
                wording = ChatWording(body, calls.model, calls.names, request)
            return await answer(calls, http_request, body, request, wording, share)

    return router


def _decode(raw: bytes) -> tuple[ChatCompletionRequest, list[Message]]:
    body = decode_body(raw, _decoder)
    messages = [{"role": message.role, "content": message.text} for message in body.messages]
    body.messages.clear()  # the texts of parts are not needed twice
    return body, messages


async def _prompt(calls: Calls, client: str, messages: list[Message]) -> list[int]:
    try:
        render = partial(calls.tokenizer.chat_template.render, messages)
        text = await calls.templates.run(client, render)
    except ChatTemplateError as error:
        raise BadRequestError("messages", f"messages: {error}") from error
    (prompt,) = await calls.encoder.encode(client, "messages", [text], special_tokens=False)
    return prompt
