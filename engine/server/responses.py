"""What /openapi.json says of answers: every status that an operation can have, and its content."""

from typing import Any

Schema = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]


def _object(properties: dict[str, Schema], *, optional: tuple[str, ...] = ()) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_LOGPROB: Schema = {"anyOf": [{"type": "number", "maximum": 0}, {"type": "null"}]}
_TOKEN_IDS = _list(_COUNT)
_FINISH: Schema = {"enum": ["stop", "length", "abort"]}

_ERROR = _object(
    {
        "error": _object(
            {
                "message": _TEXT,
                "type": _TEXT,
                "param": _nullable(_TEXT),
                "code": {"type": "integer"},
            }
        )
    }
)
_USAGE = _object(
    {
        "prompt_tokens": _COUNT,
        "completion_tokens": _COUNT,
        "total_tokens": _COUNT,
        "prompt_tokens_details": _object({"cached_tokens": _COUNT}),
    }
)


def _answer(kind: str, choice: dict[str, Schema], **more: Schema) -> Schema:
    """An answer in one piece."""
    choices = {"index": _COUNT, **choice, "finish_reason": _FINISH, "token_ids": _TOKEN_IDS}
    return _object(
        {
            "id": _TEXT,
            "object": {"const": kind},
            "created": _COUNT,
            "model": _TEXT,
            "choices": _list(_object(choices, optional=("token_ids", "prompt_token_ids"))),
            "usage": _USAGE,
            **more,
        },
        optional=tuple(more),
    )


COMPLETION_ANSWER = _answer(
    "text_completion",
    {
        "text": _TEXT,
        "logprobs": _nullable(
            _object(
                {
                    "tokens": _list(_TEXT),
                    "token_logprobs": _list(_LOGPROB),
                    "top_logprobs": _list(
                        _nullable({"type": "object", "additionalProperties": _LOGPROB})
                    ),
                    "text_offset": _list(_COUNT),
                }
            )
        ),
        "prompt_token_ids": _TOKEN_IDS,
    },
)
_NAMED: dict[str, Schema] = {"token": _TEXT, "bytes": _list(_COUNT), "logprob": _LOGPROB}
CHAT_ANSWER = _answer(
    "chat.completion",
    {
        "message": _object({"role": {"const": "assistant"}, "content": _TEXT}),
        "logprobs": _nullable(
            _object({"content": _list(_object({**_NAMED, "top_logprobs": _list(_object(_NAMED))}))})
        ),
    },
    prompt_token_ids=_TOKEN_IDS,
)
MODELS_ANSWER = _object(
    {
        "object": {"const": "list"},
        "data": _list(
            _object(
                {
                    "id": _TEXT,
                    "object": {"const": "model"},
                    "created": _COUNT,
                    "owned_by": _TEXT,
                    "root": _TEXT,
                    "max_model_len": _COUNT,
                }
            )
        ),
    }
)
HEALTHY = _object({"status": {"const": "ok"}})

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


def responses(ok: int, description: str, answer: Schema | None, *errors: int) -> Responses:
    """The statuses of one operation. answer: JSON of the good one; None: it has no content."""
    content = {} if answer is None else {"content": {"application/json": {"schema": answer}}}
    described: Responses = {ok: {"description": description, **content}}
    for status in errors:
        described[status] = {
            "description": _WHEN[status],
            "content": {"application/json": {"schema": _ERROR}},
        }
        if status == 429:
            described[status]["headers"] = _RETRY_AFTER
    return described


def generation_responses(answer: Schema, *errors: int) -> Responses:
    """Of an operation that answers in one piece, or as a stream of events of that schema."""
    described = responses(200, "The answer.", answer, 400, 401, 413, 429, 500, *errors, 503)
    event = _object({"data": {"type": "string", "contentMediaType": "application/json"}})
    described[200]["content"]["text/event-stream"] = {"schema": event}
    return described
