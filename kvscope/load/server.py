"""Facts about the server: its model, its context, how it turns text into tokens."""

import random
from dataclasses import dataclass

import httpx
import msgspec

from kvscope.load.client import authorization, describe, error_detail
from kvscope.load.scenarios import CHAT_COMPLETIONS
from kvscope.load.spec import LoadSpec
from kvscope.load.text import TextCost, words
from kvscope_events.printable import quoted
from kvscope_exporter.fetch.error import JSON_ERRORS

_HELLO_TIMEOUT_SECONDS = 10.0
"""Limit for the list of models, an answer that takes no computation."""
_PROBE_SECONDS = 300.0
"""Limit for one token, however patient the run is: sockets take no time-out of `inf`."""
_PROBE_BYTES = (32, 96)
"""Two texts, short enough for any context; their difference has no template in it."""


class ServerError(Exception):
    """The server cannot be used at all; the message is one line for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Facts that are known before the first request of the workload."""

    model: str
    max_model_len: int | None
    """None: given neither by the server nor by the user."""


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class _Usage(msgspec.Struct):
    prompt_tokens: int


class _Probe(msgspec.Struct):
    usage: _Usage


async def discover(http: httpx.AsyncClient, spec: LoadSpec) -> Server:
    """Asks `/v1/models`. Raises ServerError if nothing answers or there is no model to use."""
    url = f"{spec.base_url}/v1/models"
    try:
        answer = await http.get(url, headers=authorization(spec), timeout=_HELLO_TIMEOUT_SECONDS)
    except httpx.HTTPError as error:
        raise ServerError(f"{url}: {describe(error)}") from error
    # A server without this list can be used if the model is named.
    if answer.status_code == httpx.codes.NOT_FOUND and spec.model is not None:
        return Server(model=spec.model, max_model_len=spec.max_model_len)
    if not answer.is_success:
        raise ServerError(f"{url}: HTTP {answer.status_code}: {error_detail(answer.content)}")
    try:
        models = msgspec.json.decode(answer.content, type=_Models).data
    except JSON_ERRORS as error:
        raise ServerError(f"{url}: no list of models: {quoted(str(error))}") from error
    if spec.model is None and not models:
        raise ServerError(f"{url}: the server lists no model; name one with --model")
    name = spec.model or models[0].id
    # An alias may be served without being listed.
    listed = next((model for model in models if model.id == name), _Model(id=name))
    return Server(model=name, max_model_len=spec.max_model_len or listed.max_model_len)


async def measure_text(http: httpx.AsyncClient, spec: LoadSpec, model: str) -> TextCost | None:
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
            answer = await http.post(
                spec.base_url + CHAT_COMPLETIONS,
                headers=authorization(spec),
                json=body,
                timeout=min(spec.timeout_seconds, _PROBE_SECONDS),
            )
            probe = msgspec.json.decode(answer.content, type=_Probe)
        except (httpx.HTTPError, *JSON_ERRORS):
            return None
        counts.append((len(text), probe.usage.prompt_tokens))
    (short_bytes, short_tokens), (long_bytes, long_tokens) = counts
    if long_tokens <= short_tokens:
        return None
    bytes_per_token = (long_bytes - short_bytes) / (long_tokens - short_tokens)
    overhead = short_tokens - round(short_bytes / bytes_per_token)
    return TextCost(bytes_per_token=bytes_per_token, message_overhead=max(0, overhead))
