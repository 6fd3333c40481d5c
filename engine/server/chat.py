"""POST /v1/chat/completions: a conversation, through the model's chat template."""

import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi import Request as HttpRequest
from fastapi.responses import Response

from engine.model.tokenizer import ChatTemplateError, Tokenizer
from engine.request import Request
from engine.server.answer import Answer
from engine.server.dispatch import Dispatcher
from engine.server.encoding import encode_aside
from engine.server.errors import BadRequestError
from engine.server.generation import Piece
from engine.server.protocol import ChatCompletionRequest
from engine.server.requests import RequestFactory, trace_id


class ChatWording:
    """OpenAI's `chat.completion` objects."""

    def __init__(
        self,
        body: ChatCompletionRequest,
        model: str,
        tokenizer: Tokenizer,
        request: Request,
    ) -> None:
        self._body = body
        self._tokenizer = tokenizer
        self._prompt = request.sequences[0].prompt
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": model,
        }
        self._chunk_head = {**self._head, "object": "chat.completion.chunk"}

    def opening(self, index: int) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        chunk: dict[str, Any] = {**self._chunk_head, "choices": [choice]}
        if self._body.return_token_ids:
            chunk["prompt_token_ids"] = self._prompt
        return chunk

    def chunk(self, index: int, piece: Piece) -> dict[str, Any]:
        choice = self._choice(index, piece, {"delta": {"content": piece.text}})
        return {**self._chunk_head, "choices": [choice]}

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        return {**self._chunk_head, "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Piece], usage: dict[str, Any]) -> dict[str, Any]:
        listed = [
            self._choice(index, piece, {"message": {"role": "assistant", "content": piece.text}})
            for index, piece in enumerate(choices)
        ]
        answer: dict[str, Any] = {**self._head, "choices": listed, "usage": usage}
        if self._body.return_token_ids:
            answer["prompt_token_ids"] = self._prompt
        return answer

    def _choice(self, index: int, piece: Piece, content: dict[str, Any]) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            **content,
            "logprobs": self._logprobs(piece) if self._body.logprobs else None,
            "finish_reason": piece.finish_reason,
        }
        if self._body.return_token_ids:
            choice["token_ids"] = [token.token_id for token in piece.tokens]
        return choice

    def _logprobs(self, piece: Piece) -> dict[str, Any]:
        return {
            "content": [
                {
                    **self._named(token.token_id, token.logprob),
                    "top_logprobs": [self._named(*pair) for pair in token.alternatives or ()],
                }
                for token in piece.tokens
            ]
        }

    def _named(self, token_id: int, logprob: float | None) -> dict[str, Any]:
        name = self._tokenizer.decode_token(token_id)
        return {"token": name, "logprob": logprob, "bytes": list(name.encode())}


def chat_router(
    dispatcher: Dispatcher, tokenizer: Tokenizer, factory: RequestFactory, model: str
) -> APIRouter:
    """The endpoint over a running engine."""
    router = APIRouter()

    @router.post("/v1/chat/completions")
    async def chat_completions(
        body: ChatCompletionRequest,
        http_request: HttpRequest,
        traceparent: Annotated[str | None, Header()] = None,
    ) -> Response:
        factory.check_model(body.model)
        prompt = await _prompt(body, tokenizer)
        wanted = (
            body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        )
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        sampling = factory.sampling(body, len(prompt), wanted, logprobs)
        request = factory.build(body, [(prompt, sampling)], trace_id(traceparent))
        wording = ChatWording(body, model, tokenizer, request)
        answer = Answer(dispatcher, tokenizer, request, body.stop_strings, wording)
        return await answer.respond(http_request, stream=body.stream, usage=body.include_usage)

    return router


async def _prompt(body: ChatCompletionRequest, tokenizer: Tokenizer) -> list[int]:
    messages = [{"role": message.role, "content": message.text} for message in body.messages]
    size = sum(len(message["content"]) for message in messages)
    try:
        return await encode_aside(size, partial(tokenizer.apply_chat_template, messages))
    except ChatTemplateError as error:
        raise BadRequestError("messages", f"messages: {error}") from error
