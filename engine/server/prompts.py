"""The prompts of a completion: checks their form and length before they are decoded.

A list of token ids that exceeds the model's limit is refused by counting its commas.
"""

import re

import msgspec

from engine.server.decoding import decode_part
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
