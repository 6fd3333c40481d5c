"""Several choices in every combination: echoed, scored, chosen, streamed, with no token or some."""

from itertools import product
from typing import Any

import pytest

from tests.support.server import Server
from tests.support.sse import chunks, joined

PATH = "/v1/completions"
PROMPTS = ["one", "the other"]
SAMPLES: list[dict[str, Any]] = [
    {"n": 1},
    {"n": 3},
    {"n": 3, "best_of": 3},
    {"n": 2, "best_of": 4},
    {"best_of": 16},
]


def refused_field(body: dict[str, Any]) -> str | None:
    """The refused field; OpenAI's API does not take it either."""
    if body["stream"] and body.get("best_of", 0) > body.get("n", 1):
        return "best_of"
    return "max_tokens" if body["max_tokens"] == 0 and not body["echo"] else None


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


@pytest.mark.parametrize("samples", SAMPLES, ids=str)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_each_is_answered_in_full_or_refused_by_name(
    server: Server, samples: dict[str, Any], stream: bool
) -> None:
    for echo, logprobs, max_tokens in product((False, True), (None, 0, 2), (0, 1, 5)):
        body = {
            "prompt": PROMPTS,
            "echo": echo,
            "logprobs": logprobs,
            "max_tokens": max_tokens,
            "stream": stream,
            "seed": 9,
            "presence_penalty": 1,
            "logit_bias": {"65": 5},
            "ignore_eos": True,
            "return_token_ids": True,
            **samples,
        }
        refused = refused_field(body)
        if refused is not None:
            response = server.post(PATH, body)
            assert (response.status_code, response.json()["error"]["param"]) == (400, refused)
            continue
        if stream:
            choices = in_pieces(server, body)
        else:
            response = server.post(PATH, body)
            assert response.status_code == 200, f"{body}: {response.text}"
            choices = response.json()["choices"]
        prompts = [prompt for prompt in PROMPTS for _ in range(samples.get("n", 1))]
        assert len(choices) == len(prompts)
        for prompt, choice in zip(prompts, choices, strict=True):
            assert choice["text"].startswith(prompt if echo else "")
            assert len(choice["token_ids"]) == max_tokens
            assert choice["finish_reason"] == "length"
            shown = None if choice["logprobs"] is None else len(choice["logprobs"]["tokens"])
            expected = len(prompt) * echo + max_tokens
            assert shown == (None if logprobs is None else expected), body
