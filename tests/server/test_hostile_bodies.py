"""The cost of a body: one error is sought, one pass is made, and other clients go on."""

import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from kvscope_engine.server.app import ApiConfig
from kvscope_engine.server.chat import _decode as decode_chat
from kvscope_engine.server.completions import _decode as decode_completion
from kvscope_engine.server.errors import BadRequestError
from kvscope_engine.server.protocol import MAX_MESSAGES, MAX_SETTINGS_BYTES
from tests.support.server import Server, greedy, serving

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MEGABYTE = 10**6
LIMIT = 4096


def body_of(head: bytes, item: bytes, tail: bytes, size: int = 7 * MEGABYTE) -> bytes:
    """A body of about that size with a list of one item again and again."""
    return head + b",".join([item] * (size // (len(item) + 1))) + tail


USER = b'{"messages":[{"role":"user","content":['
HOSTILE = {
    "a text, then token ids": (COMPLETIONS, body_of(b'{"prompt":["a",', b"1", b"]}"), "prompt"),
    "token ids": (COMPLETIONS, body_of(b'{"prompt":[', b"1", b"]}"), "prompt"),
    "texts": (COMPLETIONS, body_of(b'{"prompt":[', b'"a"', b"]}"), "prompt"),
    "empty lists": (COMPLETIONS, body_of(b'{"prompt":[', b"[]", b"]}"), "prompt"),
    "stop token ids": (
        COMPLETIONS,
        body_of(b'{"prompt":"a","stop_token_ids":[', b"1", b"]}"),
        None,
    ),
    "stop strings": (COMPLETIONS, body_of(b'{"prompt":"a","stop":[', b'"a"', b"]}"), None),
    "fields": (COMPLETIONS, body_of(b'{"prompt":"a",', b'"b":null', b"}"), None),
    "numbers for parts": (CHAT, body_of(USER, b"0", b"]}]}"), "messages.0.content"),
    "parts": (CHAT, body_of(USER, b'{"type":"text","text":""}', b"]}]}"), "messages.0.content"),
    "messages": (CHAT, body_of(b'{"messages":[', b'{"role":"user"}', b"]}"), "messages"),
    "half a list": (CHAT, body_of(b'{"messages":[', b'{"role":"user"}', b""), None),
}


def decode(path: str, body: bytes) -> None:
    if path == CHAT:
        decode_chat(body)
    else:
        decode_completion(LIMIT, body)


@pytest.mark.parametrize("case", HOSTILE)
def test_a_large_body_of_small_things_is_refused_in_little_time(case: str) -> None:
    path, body, param = HOSTILE[case]
    began = time.process_time()
    with pytest.raises(BadRequestError) as refusal:
        decode(path, body)
    assert time.process_time() - began < 0.5, "an order of magnitude over what it takes"
    assert refusal.value.param == param


@pytest.mark.parametrize("case", ["a text, then token ids", "texts", "stop strings", "fields"])
def test_a_refused_body_takes_little_memory(case: str) -> None:
    path, body, _ = HOSTILE[case]
    tracemalloc.start()
    try:
        with pytest.raises(BadRequestError):
            decode(path, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(body)


@contextmanager
def another_client(server: Server) -> Iterator[list[float]]:
    """Asks for /health all along; the seconds that each answer took."""
    seconds: list[float] = []
    done = threading.Event()

    def ask() -> None:
        while not done.wait(0.005):
            began = time.monotonic()
            assert server.client.get("/health").status_code == 200
            seconds.append(time.monotonic() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield seconds
    finally:
        done.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.timed
def test_another_client_is_answered_while_large_bodies_are_refused(server: Server) -> None:
    headers = {"Content-Type": "application/json"}
    with another_client(server) as seconds:
        for path, body, _ in HOSTILE.values():
            assert server.client.post(path, content=body, headers=headers).status_code == 400
    assert max(seconds) < 1, "one of these bodies alone held all others up for many seconds"


def test_prompts_that_are_too_long_are_refused_by_their_commas(server: Server) -> None:
    error = server.post(COMPLETIONS, {"prompt": [1] * 100_000}).json()["error"]
    assert error["param"] == "prompt"
    assert error["message"].startswith("prompt: 100000 tokens, but the model's limit is 512")


def test_a_text_that_cannot_fit_is_not_encoded_to_its_end(server: Server) -> None:
    error = server.post(COMPLETIONS, {"prompt": "x" * 2 * MEGABYTE}).json()["error"]
    assert error["message"].startswith("prompt: at least 262")
    chat = {"messages": [{"role": "user", "content": "x" * MEGABYTE}]}
    error = server.post(CHAT, chat).json()["error"]
    assert error["message"].startswith("messages: at least 262")


def test_fields_besides_the_prompt_have_a_bound(server: Server) -> None:
    for extra, status in ((MAX_SETTINGS_BYTES // 2, 200), (MAX_SETTINGS_BYTES, 400)):
        response = server.post(COMPLETIONS, greedy("a") | {"unknown": "x" * extra})
        assert response.status_code == status


@pytest.mark.timed
def test_many_short_messages_are_rendered_and_encoded_aside(server: Server) -> None:
    messages = [{"role": "r" * 64, "content": ""}] * MAX_MESSAGES
    with another_client(server) as seconds:
        response = server.post(CHAT, {"messages": messages})
    assert response.status_code == 400
    assert "tokens, but the model's limit is 512" in response.json()["error"]["message"]
    assert max(seconds) < 1


def test_every_list_has_a_bound(server: Server) -> None:
    for field, value in (
        ("stop", ["x"] * 17),
        ("stop", "x" * 1025),
        ("stop_token_ids", [1] * 1025),
    ):
        error = server.post(COMPLETIONS, {"prompt": "a", field: value}).json()["error"]
        assert error["param"] == field
        assert "of length <=" in error["message"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ids", "text", "messages"])
@pytest.mark.timed
def test_health_answers_while_thirty_megabytes_are_read(kind: str) -> None:
    size = 30 * MEGABYTE
    path, body = {
        "ids": (COMPLETIONS, body_of(b'{"prompt":[', b"1", b"]}", size)),
        "text": (COMPLETIONS, b'{"prompt":"' + b"word " * (size // 5) + b'"}'),
        "messages": (CHAT, body_of(b'{"messages":[', b'{"role":"user"}', b"]}", size)),
    }[kind]
    with serving(api=ApiConfig(max_body_bytes=40 * MEGABYTE)) as server:
        headers = {"Content-Type": "application/json"}
        with another_client(server) as seconds:
            refused = httpx.post(f"{server.url}{path}", content=body, headers=headers, timeout=60)
        assert refused.status_code == 400
        assert len(seconds) > 5, "it was asked meanwhile"
        assert max(seconds) < 1
