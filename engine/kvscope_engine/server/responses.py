"""Descriptions of answers for /openapi.json: every status of an operation, and its content.

Answers are dictionaries that grow as tokens come; these types describe them and are never
instantiated.
"""

from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kvscope_engine.server.schemas import schema_of

Responses = dict[int | str, dict[str, Any]]

_Count = Annotated[int, Meta(ge=0)]
_Logprob = Annotated[float, Meta(le=0)] | None
_TokenIds = list[_Count] | UnsetType
_Finish = Literal["stop", "length", "abort"]
_C = TypeVar("_C")


class _Error(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: int


class _Refusal(msgspec.Struct):
    error: _Error


class _PromptDetails(msgspec.Struct):
    cached_tokens: _Count


class _Usage(msgspec.Struct):
    prompt_tokens: _Count
    completion_tokens: _Count
    total_tokens: _Count
    prompt_tokens_details: _PromptDetails


class _Answer(msgspec.Struct, Generic[_C], kw_only=True):
    id: str
    created: _Count
    model: str
    choices: list[_C]
    usage: _Usage


class _Choice(msgspec.Struct, kw_only=True):
    index: _Count
    finish_reason: _Finish
    token_ids: _TokenIds = UNSET


class _CompletionLogprobs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[_Logprob]
    top_logprobs: list[dict[str, _Logprob]]
    text_offset: list[_Count]


class _CompletionChoice(_Choice, kw_only=True):
    text: str
    logprobs: _CompletionLogprobs | None
    prompt_token_ids: _TokenIds = UNSET


class Completion(_Answer[_CompletionChoice], kw_only=True):
    object: Literal["text_completion"]


class _TopLogprob(msgspec.Struct, kw_only=True):
    token: str
    bytes: list[_Count]
    logprob: _Logprob


class _TokenLogprob(_TopLogprob, kw_only=True):
    top_logprobs: list[_TopLogprob]


class _ChatLogprobs(msgspec.Struct):
    content: list[_TokenLogprob]


class _Message(msgspec.Struct):
    role: Literal["assistant"]
    content: str


class _ChatChoice(_Choice, kw_only=True):
    message: _Message
    logprobs: _ChatLogprobs | None


class ChatCompletion(_Answer[_ChatChoice], kw_only=True):
    object: Literal["chat.completion"]
    prompt_token_ids: _TokenIds = UNSET


class _Model(msgspec.Struct):
    id: str
    object: Literal["model"]
    created: _Count
    owned_by: str
    root: str
    max_model_len: _Count


class Models(msgspec.Struct):
    object: Literal["list"]
    data: list[_Model]


class Healthy(msgspec.Struct):
    status: Literal["ok"]


class _Event(msgspec.Struct):
    data: str


_WHEN = {
    400: "A field is wrong or not supported (`param` names it), the prompt is too long, or the "
    "body is not a JSON object with a JSON content type.",
    401: "The API key is missing or wrong, where the server has keys.",
    403: "Without keys: a page of another origin, or a Host that is not this server's.",
    413: "The body is too long.",
    415: "Without keys: the header Content-Type: application/json is missing.",
    429: "The queue is full, too many large requests wait, or the client has its share under way.",
    500: "The engine failed while the request was under way, or the chat template did.",
    501: "The model's chat template cannot be compiled.",
    503: "The model still loads, the engine has failed, or the server is shutting down.",
}
_RETRY_AFTER = {
    "Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}
}


def responses(
    ok: int, description: str, answer: type[msgspec.Struct] | None, *errors: int
) -> Responses:
    """The statuses of one operation. answer: JSON of a successful one; None: it has no content."""
    described: Responses = {ok: {"description": description}}
    if answer is not None:
        described[ok]["content"] = {"application/json": {"schema": schema_of(answer)}}
    for status in errors:
        described[status] = {
            "description": _WHEN[status],
            "content": {"application/json": {"schema": schema_of(_Refusal)}},
        }
        if status == 429:
            described[status]["headers"] = _RETRY_AFTER
    return described


def generation_responses(answer: type[msgspec.Struct], *errors: int) -> Responses:
    """Responses of an operation that answers in one piece or as a stream of such events."""
    described = responses(200, "The answer.", answer, 400, 401, 413, 429, 500, *errors, 503)
    described[200]["content"]["text/event-stream"] = {"schema": schema_of(_Event)}
    return described
