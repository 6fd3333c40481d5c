"""Reads request bodies: limits the size of each and of all together, and decodes them.

The first error ends the decoding, and names the field. Prompts have several forms, and are decoded
by themselves; a list of token ids that exceeds the model's limit is refused by counting its commas.
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec
from fastapi import Request as HttpRequest
from starlette.exceptions import HTTPException

from kvscope_engine.server.clients import Workers, client_of
from kvscope_engine.server.errors import BadRequestError, BusyError, prompt_too_long
from kvscope_engine.server.protocol import (
    MAX_CHOICES,
    CompletionRequest,
    FieldError,
    SettingsTooLongError,
    TokenId,
    check_envelope,
)

SMALL_BODY = 64 * 2**10
"""Bytes that are decoded on the event loop, in 0.3 ms; a thread takes 0.1 ms to start."""
MAX_BYTES_HELD = 64 * 2**20
"""Bytes that larger bodies of all clients may hold together until their prompts are tokens."""

_T = TypeVar("_T")


class BodyReader:
    """Reads and decodes. Small bodies always pass; larger ones share memory and threads."""

    def __init__(self, workers: Workers, max_bytes: int) -> None:
        """max_bytes: of one body; decoding a long one holds up every other request."""
        self._workers = workers
        self._max_bytes = max_bytes
        self._held = 0

    @asynccontextmanager
    async def read(
        self, http_request: HttpRequest, decode: Callable[[bytes], _T]
    ) -> AsyncIterator[_T]:
        """The decoded body; its memory counts as held until the context ends.

        Raises HTTPException with 413 for a body over the limit, announced or not, BusyError when
        larger bodies hold too much already, BadRequestError for another type of content,
        ClientDisconnect, and what `decode` raises.
        """
        if not _is_json(http_request.headers.get("content-type", "")):
            raise BadRequestError(None, NO_OBJECT)
        announced = http_request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self._max_bytes:
            raise self._too_large()
        chunks: list[bytes] = []
        size = held = 0
        try:
            async for chunk in http_request.stream():
                chunks.append(chunk)
                size += len(chunk)
                if size > self._max_bytes:
                    raise self._too_large()
                if size > SMALL_BODY:
                    self._held += size - held
                    held = size
                    if self._held > MAX_BYTES_HELD:
                        raise BusyError
            work = partial(decode, b"".join(chunks))
            chunks.clear()
            if size <= SMALL_BODY:
                decoded = work()
            else:
                decoded = await self._workers.run(client_of(http_request.scope), work)
            del work  # and the bytes with it
            yield decoded
        finally:
            self._held -= held

    def _too_large(self) -> HTTPException:
        """The rest of the body is never read, so the connection cannot be used again."""
        return HTTPException(
            413, f"the body is over {self._max_bytes} bytes", {"Connection": "close"}
        )


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


NO_OBJECT = "the body must be a JSON object, sent with Content-Type: application/json"

MAX_SEARCHED = 64 * 2**10
"""Bytes of a malformed body that are searched for the place: slower than decoding."""

_AT = re.compile(r"(?: of| in)?(?: -)? at `(?:key(?:` in `| in ))?\$(.*)`$", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_FORMS = {
    "stop": "expected a text or a list of texts",
    "content": "expected a text or a list of text parts",
}
"""Text for a field that takes several forms."""

# An escape of half a surrogate pair, after an even number of backslashes.
_HALF_CHARACTER = re.compile(
    rb"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)


def decode_body(body: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """The checked body. Raises BadRequestError; refused fields are reported first."""
    try:
        check_envelope(body)
    except FieldError as error:
        raise BadRequestError(error.field, str(error)) from None
    except SettingsTooLongError as error:
        raise BadRequestError(None, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_part(body, decoder)  # the same error again, with the field's name
    return decode_part(body, decoder)


def decode_part(part: bytes, decoder: msgspec.json.Decoder[_T], field: str = "") -> _T:
    """A body, or the value of one field of it. Raises BadRequestError."""
    try:
        return decoder.decode(part)
    except msgspec.ValidationError as error:
        raise _wrong_value(error, field) from None
    except msgspec.DecodeError as error:
        raise _no_json(part, decoder, str(error)) from None
    except UnicodeDecodeError:
        raise BadRequestError(None, "the body is not valid JSON: it is not UTF-8") from None
    except RecursionError:
        raise BadRequestError(None, "the body is not valid JSON: nested too deeply") from None


_PROMPT = re.compile(rb'\s*(?:(?P<text>")|\[\s*(?:(?P<texts>")|(?P<id_lists>\[)|(?P<ids>[-\d\]])))')
_PROMPT_FORMS = (
    "expected a text, a list of texts, a list of token ids, or a list of lists of token ids"
)

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
    form = _PROMPT.match(raw)
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
            _check_choices(raw.count(b"[") - 1, body.n)
            ids = raw.count(b",") + 1
            if ids > limit * MAX_CHOICES:
                raise prompt_too_long("prompt", ids, limit * MAX_CHOICES)
            prompts = decode_part(raw, _id_lists, "prompt")
        case _:
            raise BadRequestError("prompt", f"prompt: {_PROMPT_FORMS}")
    if not prompts:
        raise BadRequestError("prompt", "prompt: must not be empty")
    _check_choices(len(prompts), body.n)
    return prompts


def _check_choices(prompts: int, choices_each: int) -> None:
    if prompts * choices_each > MAX_CHOICES:
        raise BadRequestError(
            "prompt",
            f"prompt: {prompts} with {choices_each} samples each, but a call has at most "
            f"{MAX_CHOICES} choices",
        )


def _wrong_value(error: msgspec.ValidationError, field: str) -> BadRequestError:
    if isinstance(error.__cause__, FieldError):
        return BadRequestError(error.__cause__.field, str(error.__cause__))
    path, problem = _where(str(error))
    if field:
        path.insert(0, field)
    if not path:
        return BadRequestError(None, NO_OBJECT)
    problem = _FORMS.get(path[-1], problem) if "str | array" in problem else problem
    message = f"{'.'.join(path)}: {problem.replace(' | null', '').replace('`', '')}"
    while path[-1].isdecimal():  # the field is to be changed, not its n-th element
        path.pop()
    return BadRequestError(".".join(path), message)


def _where(message: str) -> tuple[list[str], str]:
    """``Expected `int`, got `str` - at `$.prompt[1]` `` → prompt, 1 and the problem there."""
    at = _AT.search(message)
    path = [name or number for name, number in _STEP.findall(at[1])] if at else []
    problem = message[: at.start()] if at else message
    missing = _MISSING.match(problem)
    if missing:
        return [*path, missing[1]], "is required"
    return path, problem[:1].lower() + problem[1:]


def _no_json(body: bytes, decoder: msgspec.json.Decoder[Any], problem: str) -> BadRequestError:
    half = _HALF_CHARACTER.search(body) if len(body) <= MAX_SEARCHED else None
    if half is None:
        return BadRequestError(None, f"the body is not valid JSON: {problem}")
    problem = "the text holds half a surrogate pair, which is not a character"
    path = _path_to_text(body, half.end() - 1, decoder)
    if not path:
        return BadRequestError(None, f"the body is not valid JSON: {problem}")
    return BadRequestError(".".join(path), f"{'.'.join(path)}: {problem}")


def _path_to_text(body: bytes, within: int, decoder: msgspec.json.Decoder[Any]) -> list[str]:
    """The path of a text. An object is put at its beginning: the decoder then reports its path."""
    begin = body.rfind(b'"', 0, within)
    while begin > 0 and body[begin - 1 : begin] == b"\\":
        begin = body.rfind(b'"', 0, begin)
    try:
        decoder.decode(body[: max(0, begin)] + b"{}")
    except msgspec.ValidationError as error:
        return _where(str(error))[0]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return []
