"""Facts about the server: its model, its context, how it turns text into tokens."""

import random
from dataclasses import dataclass
from typing import Annotated

import httpx
import msgspec

from engine.one_line import quoted
from exporter.fetch.json_errors import JSON_ERRORS
from kvscope.load.client import authorization
from kvscope.load.documents import DocumentError, Documents
from kvscope.load.doubts import Doubt
from kvscope.load.refusal import error_detail
from kvscope.load.scenarios import CHAT_COMPLETIONS
from kvscope.load.spec import LoadSpec
from kvscope.load.text import TextCost, words
from kvscope.load.usage import MAX_PROMPT_TOKENS, is_count, shown

_HELLO_TIMEOUT_SECONDS = 10.0
"""Limit for the list of models, an answer that takes no computation."""
_PROBE_SECONDS = 300.0
"""Limit for one token, however patient the run is: sockets take no time-out of `inf`."""
_PROBE_BYTES = (32, 96)
"""Two texts, short enough for any context; their difference has no template in it."""
_MOST_TOKENS_PER_BYTE = 4
"""A server that counts more for plain English has not counted tokens of the text."""
MAX_MODEL_CHARACTERS = 1024
"""Every request repeats the model's name."""


class ServerError(Exception):
    """The server cannot be used at all; the message is one line for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Facts that are known before the first request of the workload."""

    model: str
    max_model_len: int | None
    """None: neither the server nor the user gives it."""


class _Model(msgspec.Struct):
    id: str
    max_model_len: object = None


class _Models(msgspec.Struct):
    data: list[_Model]


class _Usage(msgspec.Struct):
    prompt_tokens: Annotated[int, msgspec.Meta(gt=0, le=MAX_PROMPT_TOKENS)]


class _Probe(msgspec.Struct):
    usage: _Usage


async def discover(documents: Documents, spec: LoadSpec, doubt: Doubt) -> Server:
    """Asks `/v1/models`. Raises ServerError if nothing answers or there is no model to ask for."""
    url = f"{spec.base_url}/v1/models"
    try:
        answer = await documents.fetch(
            url, headers=authorization(spec), content=None, seconds=_HELLO_TIMEOUT_SECONDS
        )
    except DocumentError as error:
        raise ServerError(f"{url}: {error}") from error
    # A server without this list can be used if the model is named.
    if answer.status == httpx.codes.NOT_FOUND and spec.model is not None:
        return Server(model=spec.model, max_model_len=spec.max_model_len)
    if not answer.is_success:
        raise ServerError(f"{url}: HTTP {answer.status}: {error_detail(answer.body)}")
    try:
        models = msgspec.json.decode(answer.body, type=_Models).data
    except JSON_ERRORS as error:
        raise ServerError(f"{url}: no list of models: {quoted(str(error))}") from error
    return _choose(url, models, spec, doubt)


def _choose(url: str, models: list[_Model], spec: LoadSpec, doubt: Doubt) -> Server:
    if spec.model is None and not models:
        raise ServerError(f"{url}: the server lists no model; name one with --model")
    name = spec.model or models[0].id
    if len(name) > MAX_MODEL_CHARACTERS:
        raise ServerError(
            f"{url}: the model's name has {len(name)} characters; name another with --model"
        )
    # An alias may be served without being listed.
    listed = next((model for model in models if model.id == name), _Model(id=name))
    context = listed.max_model_len
    if context is None or (is_count(context) and 0 < context <= MAX_PROMPT_TOKENS):
        return Server(model=name, max_model_len=spec.max_model_len or context)
    doubt("max_model_len", shown(context))
    return Server(model=name, max_model_len=spec.max_model_len)


async def measure_text(documents: Documents, spec: LoadSpec, model: str) -> TextCost | None:
    """Estimate the tokenizer from two one-token chats. None: no usage in the reply, or refused."""
    counts = []
    for num_bytes in _PROBE_BYTES:
        text = words(random.Random(0), num_bytes)
        body = {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": 1,
        }
        try:
            answer = await documents.fetch(
                spec.base_url + CHAT_COMPLETIONS,
                headers=authorization(spec) | {"Content-Type": "application/json"},
                content=msgspec.json.encode(body),
                seconds=min(spec.timeout_seconds, _PROBE_SECONDS),
            )
            probe = msgspec.json.decode(answer.body, type=_Probe)
        except (DocumentError, *JSON_ERRORS):
            return None
        counts.append((len(text), probe.usage.prompt_tokens))
    (short_bytes, short_tokens), (long_bytes, long_tokens) = counts
    if not short_tokens < long_tokens <= _MOST_TOKENS_PER_BYTE * long_bytes + short_tokens:
        return None
    bytes_per_token = (long_bytes - short_bytes) / (long_tokens - short_tokens)
    overhead = short_tokens - round(short_bytes / bytes_per_token)
    return TextCost(bytes_per_token=bytes_per_token, message_overhead=max(0, overhead))
