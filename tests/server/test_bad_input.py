"""Bad input gets a 400 in OpenAI's shape that names the field; nothing else notices."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvscope_engine.server.app import ApiConfig
from tests.support.server import Server, greedy, serving
from tests.support.sse import chunks, joined

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
HALF_CHARACTER = r'"\ud83d"'
"""JSON of half a surrogate pair: a Python str that no encoding takes."""


def error_of(response: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == status
    return error


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", True),
        ("max_tokens", "5"),
        ("max_tokens", 1.5),
        ("max_tokens", 10**30),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", "hot"),
        ("temperature", True),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("n", 0),
        ("n", 33),
        ("seed", 2**63),
        ("seed", 0.5),
        ("stop", 5),
        ("stop", ["a", 5]),
        ("stop", ["a"] * 17),
        ("stop_token_ids", [-1]),
        ("stream", "yes"),
        ("ignore_eos", 1),
        ("logprobs", 21),
        ("priority", 1),
        ("user", "u" * 257),
        ("cache_salt", ""),
        ("cache_salt", 5),
        ("model", "another"),
        ("model", 5),
        ("stream_options", {"include_usage": True}),  # without stream
        ("best_of", 2),
        ("echo", True),
        ("suffix", "end"),
        ("logit_bias", {"5": 101}),
        ("logit_bias", {"5": "1"}),
        ("logit_bias", {"259": 1}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"word": 1}),
        ("logit_bias", {str(token): 1 for token in range(1025)}),
        ("logit_bias", [1]),
        ("min_tokens", 4),
        ("frequency_penalty", 2.1),
        ("presence_penalty", -2.1),
        ("presence_penalty", "0"),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1),
        ("min_p", 1.1),
        ("min_p", -0.1),
        ("response_format", {"type": "json_object"}),
        ("prompt", 5),
        ("prompt", {}),
        ("prompt", []),
        ("prompt", ""),
        ("prompt", [[]]),
        ("prompt", [-1]),
        ("prompt", [259]),
        ("prompt", [10**30]),
        ("prompt", [True, 1]),
        ("prompt", [1, "a"]),
        ("prompt", ["a", 1]),
        ("prompt", [[1], ["a"]]),
        ("prompt", [None]),
        ("prompt", ["a"] * 33),
        ("prompt", "x" * 512),
        ("prompt", [1] * 10_000),
        ("prompt", None),
    ],
    ids=lambda value: str(value)[:30],
)
def test_completion_error_names_the_field(server: Server, field: str, value: object) -> None:
    error = error_of(server.post(COMPLETIONS, {"prompt": "abc", field: value}))
    assert error["param"] == field
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(field)


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("messages", [], "messages"),
        ("messages", "hi", "messages"),
        ("messages", [5], "messages"),
        ("messages", [{"content": "hi"}], "messages.0.role"),
        ("messages", [{"role": "user", "content": 5}], "messages.0.content"),
        (
            "messages",
            [{"role": "user", "content": [{"type": "image_url"}]}],
            "messages.0.content.0.type",
        ),
        ("messages", [{"role": "user", "content": "x" * 600}], "messages"),
        ("max_tokens", 600, "max_tokens"),
        ("max_completion_tokens", 600, "max_completion_tokens"),
        ("max_completion_tokens", 0, "max_completion_tokens"),
        ("top_logprobs", 2, "top_logprobs"),  # without logprobs
        ("logprobs", 2, "logprobs"),
        ("max_tokens", 0, "max_tokens"),
        ("tools", [{"type": "function"}], "tools"),
    ],
)
def test_chat_error_names_the_field(server: Server, field: str, value: object, param: str) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], field: value}
    error = error_of(server.post(CHAT, body))
    assert error["param"] == param


def test_messages_say_what_is_expected(server: Server) -> None:
    def message(**body: object) -> str:
        return str(error_of(server.post(COMPLETIONS, {"prompt": "a", **body}))["message"])

    assert message(prompt=5) == (
        "prompt: expected a text, a list of texts, a list of token ids, or a list of lists of "
        "token ids"
    )
    assert message(prompt=[1, -2]).startswith("prompt.1: ")
    assert message(prompt="x" * 600) == (
        "prompt: 600 tokens, but the model's limit is 512 and the answer needs at least one: "
        "shorten it"
    )
    assert message(max_tokens=512) == (
        "max_tokens: 512 after a prompt of 1 tokens is over the model's limit of 512: at most "
        "511 fit"
    )
    assert message(model="gpt") == "model: 'gpt' is not served here; 'demo' is"
    assert message(stop=5) == "stop: expected a text or a list of texts"


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "null",
        '"text"',
        '{"prompt": "a", "temperature": NaN}',
        '{"prompt": "a", "temperature": Infinity}',
        '{"prompt": "a", "top_p": -Infinity}',
        '{"prompt": "a", "max_tokens": 1e400}',
        '{"prompt": "a", "max_tokens": ' + "1" * 5000 + "}",
        '{"prompt": ' + "[" * 100_000 + "]" * 100_000 + "}",
        f'{{"prompt": {HALF_CHARACTER}}}',
        f'{{"prompt": ["a", {HALF_CHARACTER}]}}',
        f'{{"prompt": "a", "user": {HALF_CHARACTER}}}',
        f'{{"prompt": "a", "cache_salt": {HALF_CHARACTER}}}',
        f'{{"prompt": "a", "model": {HALF_CHARACTER}}}',
        b"\xff\xfe{}",
        b"\xff",
    ],
    ids=lambda value: str(value)[:40],
)
def test_malformed_body_is_400_and_the_connection_lives(server: Server, body: str | bytes) -> None:
    with httpx.Client(base_url=server.url) as client:
        headers = {"Content-Type": "application/json"}
        error_of(client.post(COMPLETIONS, content=body, headers=headers))
        assert client.post(COMPLETIONS, json=greedy("abc")).status_code == 200


def test_half_a_character_in_a_chat_is_400(server: Server) -> None:
    content = f'{{"messages": [{{"role": "user", "content": {HALF_CHARACTER}}}]}}'
    headers = {"Content-Type": "application/json"}
    response = server.client.post(CHAT, content=content, headers=headers)
    assert error_of(response)["param"] == "messages.0.content"


def test_json_under_another_content_type_is_told(server: Server) -> None:
    error = error_of(server.client.post(COMPLETIONS, data={"prompt": "abc"}))
    assert "Content-Type: application/json" in error["message"]
    assert error["param"] is None


def test_unknown_path_and_method_have_the_same_shape(server: Server) -> None:
    error_of(server.client.get("/v2/nothing"), 404)
    response = server.client.get(COMPLETIONS)
    error_of(response, 405)
    assert response.headers["allow"] == "POST"


def test_rejected_requests_are_counted_by_reason(server: Server) -> None:
    def rejected(reason: str) -> float:
        return server.metric("kvscope_requests_rejected_total", reason=reason)

    server.complete("a", max_tokens=1)  # a step flushes the bus
    before = {reason: rejected(reason) for reason in ("invalid", "prompt_too_long")}
    server.post(COMPLETIONS, {"prompt": 5})
    server.post(COMPLETIONS, {"prompt": "a", "model": "another"})
    server.post(COMPLETIONS, {"prompt": "x" * 600})
    server.client.post(COMPLETIONS, content="{")
    server.complete("a", max_tokens=1)
    assert rejected("invalid") == before["invalid"] + 3
    assert rejected("prompt_too_long") == before["prompt_too_long"] + 1


@pytest.mark.parametrize("announced", [True, False])
def test_a_huge_body_is_refused_unread(announced: bool) -> None:
    with serving(api=ApiConfig(max_body_bytes=1000)) as server:
        content = b'{"prompt": "' + b"x" * 1000 + b'"}'
        body = content if announced else iter([content[:600], content[600:]])
        headers = {"Content-Type": "application/json"}
        with httpx.Client(base_url=server.url) as client:
            response = client.post(COMPLETIONS, content=body, headers=headers)
            assert "1000 bytes" in error_of(response, 413)["message"]
            assert client.post(COMPLETIONS, json=greedy("abc")).status_code == 200


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 40)
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["demo", "user", "text", "a longer text " * 9])
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
_TOKENS = st.lists(st.integers(0, 258), max_size=30)
_LIKELY: dict[str, st.SearchStrategy[object]] = {
    "prompt": st.text(min_size=1, max_size=30) | _TOKENS | st.lists(_TOKENS, max_size=3),
    "messages": st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "system"]), "content": st.none() | st.text()}
        ),
        min_size=1,
        max_size=3,
    ),
    "max_tokens": st.integers(1, 6),
    "max_completion_tokens": st.integers(1, 6),
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0.01, 1),
    "top_k": st.integers(-1),
    "min_p": st.floats(0, 1),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "repetition_penalty": st.floats(0, exclude_min=True, allow_infinity=False),
    "logit_bias": st.dictionaries(st.integers(0, 258).map(str), st.floats(-100, 100)),
    "n": st.integers(1, 3),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "stop": st.text(max_size=3) | st.lists(st.text(max_size=3), max_size=3),
    "stop_token_ids": _TOKENS,
    "logprobs": st.integers(0, 20) | st.booleans(),
    "top_logprobs": st.integers(0, 20),
    "stream": st.booleans(),
    "return_token_ids": st.booleans(),
    "ignore_eos": st.booleans(),
    "user": st.text(max_size=5),
    "cache_salt": st.text(min_size=1, max_size=5),
    "priority": st.just(0),
    "model": st.just("demo"),
}


@st.composite
def _calls(draw: st.DrawFn) -> tuple[str, dict[str, object]]:
    """A path and a body that is right but for one field; `max_tokens` keeps replies short."""
    path, content = draw(st.sampled_from([(COMPLETIONS, "prompt"), (CHAT, "messages")]))
    fields = draw(st.sets(st.sampled_from(sorted(_LIKELY)), max_size=6))
    fields |= {content, "max_tokens"}
    body = {name: draw(_LIKELY[name]) for name in sorted(fields)}
    if draw(st.booleans()):
        body[draw(st.sampled_from([*sorted(_LIKELY), "stream_options"]))] = draw(_JSON)
    return path, body


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(_calls())
@pytest.mark.slow
def test_no_body_gets_a_500(server: Server, call: tuple[str, dict[str, object]]) -> None:
    path, body = call
    headers = {"Content-Type": "application/json"}
    response = server.client.post(path, content=json.dumps(body), headers=headers)
    if response.status_code == 200:
        assert "internal_error" not in response.text
    else:
        error_of(response)


@pytest.mark.slow
def test_bad_requests_cost_the_others_no_token(server: Server) -> None:
    prompts = [[i] * 20 for i in range(4)]
    quiet = [c["token_ids"] for c in server.complete(prompts, max_tokens=100)["choices"]]
    body = greedy(prompts, max_tokens=100, stream=True, cache_salt="again")
    with server.client.stream("POST", COMPLETIONS, json=body, timeout=20) as response:
        lines = response.iter_lines()
        first = next(lines)
        for bad in ({"prompt": 5}, {"prompt": "x" * 600}, {"prompt": "a", "max_tokens": 0}):
            error_of(server.post(COMPLETIONS, bad))
        streamed = joined(chunks([first, *lines]))
    assert [streamed[i]["token_ids"] for i in range(4)] == quiet
