"""/v1/chat/completions: what a caller gets, whole and streamed."""

from typing import Any

from tests.support.server import Server
from tests.support.sse import chunks, joined

PATH = "/v1/chat/completions"


def body(*contents: object, **fields: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]
    common = {"temperature": 0, "max_tokens": 8, "ignore_eos": True, "return_token_ids": True}
    return {"messages": messages, **common, **fields}


def stream(server: Server, request: dict[str, Any]) -> list[dict[str, Any]]:
    with server.client.stream("POST", PATH, json=request | {"stream": True}) as response:
        assert response.status_code == 200
        return chunks(response.iter_lines())


def test_answer_has_openais_shape(server: Server) -> None:
    server.reins.says = b"good day"
    answer = server.post(PATH, body("hi")).json()
    assert answer["id"].startswith("chatcmpl-")
    assert answer["object"] == "chat.completion"
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "good day"}
    assert (choice["finish_reason"], choice["token_ids"]) == ("length", list(b"good day"))
    assert len(answer["prompt_token_ids"]) == answer["usage"]["prompt_tokens"]


def test_stream_opens_with_the_role_and_joins_to_the_whole(server: Server) -> None:
    request = body("hi", n=2, seed=3, temperature=1, stream_options={"include_usage": True})
    plain = {k: v for k, v in request.items() if k != "stream_options"}
    whole = server.post(PATH, plain).json()
    *events, last = stream(server, request)
    openings = [e["choices"][0] for e in events if "role" in e["choices"][0]["delta"]]
    assert [opening["index"] for opening in openings] == [0, 1]
    assert all(o["delta"] == {"role": "assistant", "content": ""} for o in openings)
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert (last["choices"], last["usage"]) == ([], whole["usage"])
    streamed = joined(events)
    for choice in whole["choices"]:
        assert streamed[choice["index"]]["text"] == choice["message"]["content"]
        assert streamed[choice["index"]]["token_ids"] == choice["token_ids"]
    assert events[0]["prompt_token_ids"] == whole["prompt_token_ids"]


def test_text_parts_are_joined(server: Server) -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    plain, in_parts = (server.post(PATH, body(c)).json() for c in ("one two", parts))
    assert plain["prompt_token_ids"] == in_parts["prompt_token_ids"]


def test_a_conversation_finds_its_beginning_cached(server: Server) -> None:
    question = "a question of more than a block of tokens, so that it can be found again"
    first = server.post(PATH, body(question)).json()
    reply = first["choices"][0]["message"]["content"]
    second = server.post(PATH, body(question, reply, "and?")).json()
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= 64


def test_max_tokens_defaults_to_what_fits(server: Server) -> None:
    request = body("x" * 450)
    del request["max_tokens"]
    usage = server.post(PATH, request).json()["usage"]
    assert usage["total_tokens"] == 512


def test_max_completion_tokens_wins(server: Server) -> None:
    answer = server.post(PATH, body("hi", max_completion_tokens=3)).json()
    assert answer["usage"]["completion_tokens"] == 3


def test_logprobs_name_tokens_and_bytes(server: Server) -> None:
    request = body("hi", logprobs=True, top_logprobs=2, max_tokens=3)
    content = server.post(PATH, request).json()["choices"][0]["logprobs"]["content"]
    assert len(content) == 3
    for token in content:
        assert token.keys() == {"token", "logprob", "bytes", "top_logprobs"}
        assert token["logprob"] == token["top_logprobs"][0]["logprob"]
        assert len(token["top_logprobs"]) == 2
