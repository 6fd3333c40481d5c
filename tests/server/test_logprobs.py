"""Log probabilities: JSON that is written as tokens come; a large answer stops no one."""

import json
import math
from typing import Any

import pytest

from kvscope_engine.model.demo import demo_tokenizer
from kvscope_engine.model.tokenizer import Tokenizer
from kvscope_engine.server.logprobs import (
    ChatLogprobs,
    CompletionLogprobs,
    LogprobWriter,
    TokenNames,
)
from kvscope_engine.step_plan import SampledToken
from tests.support.server import Server

NAMES = TokenNames(Tokenizer(demo_tokenizer(), frozenset()))
HALF = 0xE2
"""A token that is a part of a character."""


def written(writer: LogprobWriter, *tokens: SampledToken) -> Any:
    for offset, token in enumerate(tokens):
        writer.add(token, offset)
    return json.loads(b"".join(writer.parts()))


def test_chat_tokens_have_names_bytes_and_alternatives() -> None:
    quote = SampledToken(ord('"'), -0.5, [(ord('"'), -0.5), (HALF, -1e-9)])
    assert written(ChatLogprobs(NAMES), quote, SampledToken(ord("a"), -math.inf)) == {
        "content": [
            {
                "token": '"',
                "bytes": [34],
                "logprob": -0.5,
                "top_logprobs": [
                    {"token": '"', "bytes": [34], "logprob": -0.5},
                    {"token": "\ufffd", "bytes": [0xEF, 0xBF, 0xBD], "logprob": -1e-9},
                ],
            },
            {"token": "a", "bytes": [97], "logprob": None, "top_logprobs": []},
        ]
    }
    assert written(ChatLogprobs(NAMES)) == {"content": []}


def test_completions_have_lists_and_the_likeliest_of_two_that_read_alike() -> None:
    token = SampledToken(ord("a"), -0.25, [(HALF, -1.0), (ord("a"), -2.0), (HALF + 1, -3.0)])
    assert written(CompletionLogprobs(NAMES), token, SampledToken(257, -1.5)) == {
        "tokens": ["a", "</s>"],
        "token_logprobs": [-0.25, -1.5],
        "top_logprobs": [{"\ufffd": -1.0, "a": -2.0}, {}],
        "text_offset": [0, 1],
    }


@pytest.mark.parametrize("stream", [False, True])
def test_both_apis_give_them_for_every_choice(server: Server, stream: bool) -> None:
    common = {"max_tokens": 3, "ignore_eos": True, "n": 2, "stream": stream}
    chat = common | {
        "messages": [{"role": "user", "content": "hi"}],
        "logprobs": True,
        "top_logprobs": 2,
    }
    plain = common | {"prompt": "hi", "logprobs": 2}
    found: dict[tuple[str, int], int] = {}
    for path, body, key in (
        ("/v1/chat/completions", chat, "content"),
        ("/v1/completions", plain, "tokens"),
    ):
        text = server.post(path, body).text
        lines = text.split("\n\n") if stream else [f"data: {text}"]
        for line in lines:
            if line and not line.endswith("[DONE]"):
                for choice in json.loads(line.removeprefix("data: "))["choices"]:
                    if choice["logprobs"] is not None:
                        place = (path, choice["index"])
                        found[place] = found.get(place, 0) + len(choice["logprobs"][key])
    assert set(found.values()) == {3}
    assert len(found) == 4


async def sent(response: Any) -> list[bytes]:
    messages: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await response({"type": "http"}, None, send)
    start, *bodies = messages
    parts = [message["body"] for message in bodies]
    assert [name for name, _ in start["headers"]].count(b"content-length") == 1
    assert dict(start["headers"])[b"content-length"] == b"%d" % sum(map(len, parts))
    assert [message.get("more_body", False) for message in bodies][-1] is False
    return parts
