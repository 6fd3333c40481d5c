"""The requests of OpenAI's completion and chat APIs, with vLLM's additions, checked by field.

A known field that this engine does not implement is refused by name, never silently dropped.
Unknown fields are ignored, as by vLLM; null is the same as absent. Types are strict: neither `true`
nor "5" is a number.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

MAX_CHOICES = 32
"""Sequences one HTTP request may start: prompts times n."""
MAX_STOP_STRINGS = 16

_NOT_SUPPORTED: dict[str, tuple[Any, ...]] = {
    # field: values that mean the default, besides null
    "add_special_tokens": (True,),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": (),
    "continue_final_message": (False,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "functions": ([],),
    "include_stop_str_in_output": (False,),
    "logit_bias": ({},),
    "min_p": (0,),
    "min_tokens": (0,),
    "presence_penalty": (0,),
    "prompt_embeds": (),
    "prompt_logprobs": (0,),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none",),
    "tools": ([],),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
}


def _encodable(text: str) -> str:
    """Refuse half a surrogate pair, which JSON can escape and no tokenizer accepts."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(
                "the text holds half a surrogate pair, which is not a character"
            ) from None
    return text


Text = Annotated[str, AfterValidator(_encodable)]
TokenId = Annotated[int, Field(ge=0)]

# Tags name the form of a value; in brackets, so that they never pass for the name of a field.
_TEXT, _TEXTS, _IDS, _ID_LISTS = "<text>", "<texts>", "<token ids>", "<lists of token ids>"


def _prompt_form(prompt: Any) -> str | None:
    match prompt:
        case str():
            return _TEXT
        case [str(), *_]:
            return _TEXTS
        case [list(), *_]:
            return _ID_LISTS
        case [int(), *_] | []:
            return _IDS
    return None


def _text_form(value: Any) -> str | None:
    match value:
        case str():
            return _TEXT
        case list():
            return _TEXTS
    return None


Prompt = Annotated[
    Annotated[Text, Tag(_TEXT)]
    | Annotated[list[Text], Tag(_TEXTS)]
    | Annotated[list[TokenId], Tag(_IDS)]
    | Annotated[list[list[TokenId]], Tag(_ID_LISTS)],
    Discriminator(
        _prompt_form,
        custom_error_type="prompt_form",
        custom_error_message="expected a text, a list of texts, a list of token ids, or a list of "
        "lists of token ids",
    ),
]
Stop = Annotated[
    Annotated[str, Tag(_TEXT)]
    | Annotated[list[str], Field(max_length=MAX_STOP_STRINGS), Tag(_TEXTS)],
    Discriminator(
        _text_form,
        custom_error_type="stop_form",
        custom_error_message="expected a text or a list of texts",
    ),
]


class FieldError(ValueError):
    """A value that is wrong for a reason beyond its type."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class UnsupportedFieldError(FieldError):
    """The caller asked for something this engine does not do."""

    def __init__(self, field: str) -> None:
        super().__init__(field, f"{field} is not supported by this server: leave it out")


class DependentFieldError(FieldError):
    """A field that means nothing unless another is true."""

    def __init__(self, field: str, other: str) -> None:
        super().__init__(field, f"{field} is only allowed together with {other}: true")


class _Body(BaseModel):
    """A strict JSON object in which null is the same as absent."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, body: Any) -> Any:
        if isinstance(body, dict):
            return {field: value for field, value in body.items() if value is not None}
        return body


class StreamOptions(_Body):
    include_usage: bool = False


class GenerationRequest(_Body):
    """Fields of both APIs."""

    model: Annotated[str, Field(max_length=1024)] | None = None
    max_tokens: Annotated[int, Field(gt=0)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=-1)] = 0
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Stop | None = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: Annotated[Text, Field(max_length=256)] | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0
    cache_salt: Annotated[Text, Field(min_length=1, max_length=256)] | None = None
    return_token_ids: bool = False

    @model_validator(mode="before")
    @classmethod
    def _refuse_what_is_not_done(cls, body: Any) -> Any:
        if isinstance(body, dict):
            for field, nothing in _NOT_SUPPORTED.items():
                if body.get(field) is not None and body[field] not in nothing:
                    raise UnsupportedFieldError(field)
        return body

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise DependentFieldError("stream_options", "stream")
        return self

    @property
    def stop_strings(self) -> list[str]:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [stop for stop in stops if stop]

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionRequest(GenerationRequest):
    """POST /v1/completions. Several prompts give several choices, prompt by prompt."""

    prompt: Prompt
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


class TextPart(_Body):
    type: Literal["text"]
    text: Text


Content = Annotated[
    Annotated[Text, Tag(_TEXT)] | Annotated[list[TextPart], Tag(_TEXTS)],
    Discriminator(
        _text_form,
        custom_error_type="content_form",
        custom_error_message="expected a text or a list of text parts",
    ),
]


class ChatMessage(_Body):
    role: Annotated[Text, Field(min_length=1, max_length=64)]
    content: Content | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class ChatCompletionRequest(GenerationRequest):
    """POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(gt=0)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @model_validator(mode="after")
    def _top_logprobs_need_logprobs(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise DependentFieldError("top_logprobs", "logprobs")
        return self
