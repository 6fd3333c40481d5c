"""Several choices in every combination: scored, streamed, with one token or some."""

from itertools import product
from typing import Any

import pytest

from tests.support.server import Server
from tests.support.sse import chunks, joined

PATH = "/v1/completions"
PROMPTS = ["one", "the other"]


def in_pieces(server: Server, body: dict[str, Any]) -> list[dict[str, Any]]:
    with server.client.stream("POST", PATH, json=body) as response:
        assert response.status_code == 200
        events = chunks(response.iter_lines())
    choices = joined(events)
    tokens: dict[int, list[str]] = {index: [] for index in choices}
    for event in events:
        for choice in event["choices"]:
            tokens[choice["index"]] += (choice["logprobs"] or {"tokens": []})["tokens"]
    return [
        choices[index] | {"logprobs": {"tokens": tokens[index]} if tokens[index] else None}
        for index in sorted(choices)
    ]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_each_is_answered_in_full(server: Server, n: int, stream: bool) -> None:
    for logprobs, max_tokens in product((None, 0, 2), (1, 5)):
        body = {
            "prompt": PROMPTS,
            "n": n,
            "logprobs": logprobs,
            "max_tokens": max_tokens,
            "stream": stream,
            "seed": 9,
            "presence_penalty": 1,
            "logit_bias": {"65": 5},
            "ignore_eos": True,
            "return_token_ids": True,
        }
        if stream:
            choices = in_pieces(server, body)
        else:
            response = server.post(PATH, body)
            assert response.status_code == 200, f"{body}: {response.text}"
            choices = response.json()["choices"]
        assert len(choices) == n * len(PROMPTS)
        for choice in choices:
            assert len(choice["token_ids"]) == max_tokens
            assert choice["finish_reason"] == "length"
            shown = None if choice["logprobs"] is None else len(choice["logprobs"]["tokens"])
            assert shown == (None if logprobs is None else max_tokens), body
