"""The requests of OpenAI's completion and chat APIs, with vLLM's additions, checked by field.

A known field that this engine does not implement is refused by name, never silently dropped.
Unknown fields are ignored, as by vLLM; null is the same as absent. Types are strict: neither `true`
nor "5" is a number. Every list and every text has a bound, and decoding ends at the first error.
"""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypeVar

import msgspec
from msgspec import Meta

MAX_CHOICES = 32
"""Sequences that one HTTP request may start: prompts times n."""
MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 1024
"""Characters of one stop string."""
MAX_STOP_TOKEN_IDS = 1024
MAX_MESSAGES = 8192
"""Messages of one conversation."""
MAX_PARTS = 4096
"""Parts of one message."""
MAX_MODEL_NAME = 1024
"""Characters of the name of a model in a request."""

MAX_LOGIT_BIASES = 1024

NOT_SUPPORTED: dict[str, tuple[Any, ...]] = {
    # field: values that mean the default, besides null
    "add_special_tokens": (True,),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": (),
    "continue_final_message": (False,),
    "echo": (False,),
    "functions": ([],),
    "include_stop_str_in_output": (False,),
    "min_tokens": (0,),
    "prompt_embeds": (),
    "prompt_logprobs": (0,),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none",),
    "tools": ([],),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
}
MAX_SETTINGS_BYTES = 256 * 2**10
"""Bytes of a body without its prompt or messages: only these may be long."""
_LONGEST_DEFAULT = 64
"""Maximum bytes of a value without effect; a longer one is refused undecoded."""

_T = TypeVar("_T")
if TYPE_CHECKING:
    Nullable = Annotated[_T, None]
else:
    Nullable = Optional[_T]  # noqa: UP045 - a type variable alone has no `|`
"""May be null in JSON; has the field's default once the body is decoded."""

TokenId = Annotated[int, Meta(ge=0)]
StopString = Annotated[str, Meta(max_length=MAX_STOP_CHARACTERS)]
Label = Annotated[str, Meta(max_length=256)]
LogitBias = Annotated[
    dict[TokenId, Annotated[float, Meta(ge=-100, le=100)]],
    Meta(
        max_length=MAX_LOGIT_BIASES,
        extra_json_schema={"propertyNames": {"pattern": "^(0|[1-9][0-9]{0,17})$"}},
    ),
]
"""By token id."""


class FieldError(ValueError):
    """A value that is wrong for a reason beyond its type."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def _not_supported(field: str) -> FieldError:
    """The caller asked for something this engine does not do."""
    return FieldError(field, f"{field} is not supported by this server: leave it out")


def _needs(field: str, other: str) -> FieldError:
    """The field has no meaning unless a second one is true."""
    return FieldError(field, f"{field} is only allowed together with {other}: true")


class SettingsTooLongError(ValueError):
    """The rest of the body is longer than any legitimate use."""

    def __init__(self) -> None:
        super().__init__(
            f"the fields besides the prompt are over {MAX_SETTINGS_BYTES} bytes: shorten them"
        )


class _Body(msgspec.Struct, kw_only=True):
    """A strict JSON object in which null is the same as absent."""

    def __post_init__(self) -> None:
        for field, default in _defaults(type(self)):
            if getattr(self, field) is None:
                setattr(self, field, default)


@cache
def _defaults(body: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """The fields whose default is not null, and that default."""
    return tuple(
        (field.name, field.default)
        for field in msgspec.structs.fields(body)
        if field.default is not msgspec.NODEFAULT and field.default is not None
    )


class StreamOptions(_Body, kw_only=True):
    include_usage: Nullable[bool] = False
    continuous_usage_stats: Nullable[bool] = False
    """Usage in every chunk as well, if `include_usage` is true."""


StreamUsage = Literal["never", "last chunk", "every chunk"]
"""Chunks of a stream that have usage."""


class GenerationRequest(_Body, kw_only=True):
    """Fields of both APIs."""

    model: Annotated[str, Meta(max_length=MAX_MODEL_NAME)] | None = None
    max_tokens: Annotated[int, Meta(gt=0)] | None = None
    temperature: Nullable[Annotated[float, Meta(ge=0, le=2)]] = 1.0
    top_p: Nullable[Annotated[float, Meta(gt=0, le=1)]] = 1.0
    top_k: Nullable[Annotated[int, Meta(ge=-1)]] = 0
    min_p: Nullable[Annotated[float, Meta(ge=0, le=1)]] = 0.0
    presence_penalty: Nullable[Annotated[float, Meta(ge=-2, le=2)]] = 0.0
    frequency_penalty: Nullable[Annotated[float, Meta(ge=-2, le=2)]] = 0.0
    repetition_penalty: Nullable[Annotated[float, Meta(gt=0)]] = 1.0
    logit_bias: LogitBias | None = None
    n: Nullable[Annotated[int, Meta(ge=1, le=MAX_CHOICES)]] = 1
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=MAX_STOP_STRINGS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=MAX_STOP_TOKEN_IDS)] | None = None
    ignore_eos: Nullable[bool] = False
    stream: Nullable[bool] = False
    stream_options: StreamOptions | None = None
    user: Label | None = None
    priority: Nullable[Annotated[int, Meta(ge=-(2**31), lt=2**31)]] = 0
    cache_salt: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    return_token_ids: Nullable[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stream_options is not None and not self.stream:
            raise _needs("stream_options", "stream")

    @property
    def stop_strings(self) -> list[str]:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [stop for stop in stops if stop]

    @property
    def stream_usage(self) -> StreamUsage:
        options = self.stream_options
        if options is None or not options.include_usage:
            return "never"
        return "every chunk" if options.continuous_usage_stats else "last chunk"


_TOKENS_SCHEMA = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_PROMPT_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "maxItems": MAX_CHOICES,
        },
        _TOKENS_SCHEMA,
        {"type": "array", "items": _TOKENS_SCHEMA, "minItems": 1, "maxItems": MAX_CHOICES},
    ]
}


class CompletionRequest(GenerationRequest, kw_only=True):
    """POST /v1/completions. Several prompts give several choices, prompt by prompt."""

    prompt: Annotated[msgspec.Raw, Meta(extra_json_schema=_PROMPT_SCHEMA)]
    """Not decoded yet: its length is checked first."""
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


class TextPart(msgspec.Struct, gc=False):
    type: Literal["text"]
    text: str


class ChatMessage(msgspec.Struct, gc=False):
    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: str | Annotated[list[TextPart], Meta(max_length=MAX_PARTS)] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join([part.text for part in self.content])
        return self.content or ""


class ChatCompletionRequest(GenerationRequest, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Annotated[int, Meta(gt=0)] | None = None
    logprobs: Nullable[bool] = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top_logprobs and not self.logprobs:
            raise _needs("top_logprobs", "logprobs")


_LONG = ("prompt", "messages")
_ABSENT = msgspec.Raw()


_envelope = msgspec.json.Decoder(
    msgspec.defstruct(
        "Envelope", [(field, msgspec.Raw, _ABSENT) for field in (*_LONG, *NOT_SUPPORTED)]
    )
)


def check_envelope(body: bytes) -> None:
    """Check a body before its values are decoded.

    Raises FieldError for the first field that would have an effect here. Raises
    SettingsTooLongError, or msgspec.DecodeError for anything but a JSON object.
    """
    given = _envelope.decode(body)
    long = sum(len(memoryview(getattr(given, field))) for field in _LONG)
    if len(body) - long > MAX_SETTINGS_BYTES:
        raise SettingsTooLongError
    for field, without_effect in NOT_SUPPORTED.items():
        raw = getattr(given, field)
        if raw is _ABSENT:
            continue
        value = memoryview(raw)
        if len(value) > _LONGEST_DEFAULT:
            raise _not_supported(field)
        decoded = msgspec.json.decode(value)
        if decoded is not None and decoded not in without_effect:
            raise _not_supported(field)
