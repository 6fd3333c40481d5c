"""/v1/completions: what a caller gets, whole and streamed."""

from typing import Any

import pytest

from tests.support.server import Server, greedy
from tests.support.sse import chunks, joined

PATH = "/v1/completions"


def stream(server: Server, body: dict[str, Any]) -> list[dict[str, Any]]:
    with server.client.stream("POST", PATH, json=body | {"stream": True}) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        return chunks(response.iter_lines())


def test_answer_has_openais_shape(server: Server) -> None:
    answer = server.post(PATH, {"model": "demo", "prompt": "abc", "max_tokens": 3}).json()
    assert answer["id"].startswith("cmpl-")
    assert (answer["object"], answer["model"]) == ("text_completion", "demo")
    choice = answer["choices"][0]
    assert choice.keys() == {"index", "text", "logprobs", "finish_reason"}
    assert choice["finish_reason"] == "length"
    assert answer["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 3,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_max_tokens_defaults_to_16_and_null_is_absent(server: Server) -> None:
    body = {"prompt": "abc", "ignore_eos": True}
    nulls = dict.fromkeys(("max_tokens", "temperature", "n", "stop", "stream", "seed", "top_p"))
    for answer in (server.post(PATH, body).json(), server.post(PATH, body | nulls).json()):
        assert answer["usage"]["completion_tokens"] == 16


def test_text_and_its_token_ids_are_the_same_prompt(server: Server) -> None:
    ids = list("naïve".encode())
    by_text, by_ids = server.complete("naïve"), server.complete(ids)
    for answer in (by_text, by_ids):
        assert answer["choices"][0]["prompt_token_ids"] == ids
    assert by_text["choices"][0]["token_ids"] == by_ids["choices"][0]["token_ids"]


def test_stream_joins_to_the_whole_answer(server: Server) -> None:
    body = greedy("a stream", max_tokens=40)
    whole = server.post(PATH, body).json()["choices"][0]
    events = stream(server, body)
    assert joined(events)[0] == {k: whole[k] for k in ("text", "token_ids", "finish_reason")}
    assert len(events) > 1
    assert len({event["id"] for event in events}) == 1
    first, *others = [event["choices"][0] for event in events]
    assert first["prompt_token_ids"] == list(b"a stream")
    assert not any("prompt_token_ids" in choice for choice in others)


def test_usage_comes_last_in_a_stream_only_on_request(server: Server) -> None:
    assert not any("usage" in event for event in stream(server, greedy("abc")))
    *_, last = stream(server, greedy("abc", stream_options={"include_usage": True}))
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 16


def test_choices_are_numbered_prompt_by_prompt(server: Server) -> None:
    body = greedy(["first", "second"], n=2, max_tokens=5)
    answer = server.post(PATH, body).json()
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    prompts = [bytes(choice["prompt_token_ids"]) for choice in choices]
    assert prompts == [b"first", b"first", b"second", b"second"]
    assert answer["usage"]["prompt_tokens"] == len("first" + "second")
    assert answer["usage"]["completion_tokens"] == 20
    streamed = joined(stream(server, body))
    assert [streamed[i]["token_ids"] for i in range(4)] == [c["token_ids"] for c in choices]


def test_lists_of_token_ids_are_several_prompts(server: Server) -> None:
    choices = server.complete([[1, 2, 3], [4]])["choices"]
    assert [choice["prompt_token_ids"] for choice in choices] == [[1, 2, 3], [4]]


def test_a_seed_gives_the_same_draws_and_each_choice_its_own(server: Server) -> None:
    body = {"prompt": "dice", "n": 3, "seed": 7, "max_tokens": 12, "ignore_eos": True}
    first, second = (server.post(PATH, body).json()["choices"] for _ in range(2))
    assert [c["text"] for c in first] == [c["text"] for c in second]
    assert len({c["text"] for c in first}) == 3
    other = server.post(PATH, body | {"seed": 8}).json()["choices"]
    assert other[2]["text"] != first[2]["text"]


@pytest.mark.parametrize("seed", [2**63 - 1, -(2**63), 0])
def test_any_64_bit_seed_works(server: Server, seed: int) -> None:
    answer = server.post(PATH, {"prompt": "x", "seed": seed, "n": 2, "max_tokens": 2})
    assert answer.status_code == 200


def test_cached_tokens_are_whole_blocks_found(server: Server) -> None:
    prompt = [9] * 40
    cold, warm = (server.complete(prompt, cache_salt="cached")["usage"] for _ in range(2))
    assert cold["prompt_tokens_details"] == {"cached_tokens": 0}
    assert warm["prompt_tokens_details"] == {"cached_tokens": 32}
    other = server.complete(prompt, cache_salt="other")["usage"]
    assert other["prompt_tokens_details"] == {"cached_tokens": 0}


def test_reset_prefix_cache_forgets(server: Server) -> None:
    prompt = [8] * 40
    server.complete(prompt)
    assert server.post("/reset_prefix_cache", {}).status_code == 202
    assert server.complete(prompt)["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


def test_end_of_sequence_ends_unless_ignored(server: Server) -> None:
    server.reins.says, server.reins.ends_after = b"abcdefgh", 3
    ended = server.complete("x", ignore_eos=False)["choices"][0]
    assert (ended["text"], ended["finish_reason"]) == ("abc", "stop")
    assert ended["token_ids"] == [*b"abc", 257]
    ignored = server.complete("x", max_tokens=6)["choices"][0]
    assert (ignored["text"], ignored["finish_reason"]) == ("abcef", "length")


def test_stop_token_ids_end_without_text(server: Server) -> None:
    server.reins.says = b"hello"
    choice = server.complete("x", stop_token_ids=[ord("l")])["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("he", "stop")
    assert choice["token_ids"] == list(b"hel")


@pytest.mark.parametrize(
    ("stop", "text", "reason"),
    [
        ("wor", "hello ", "stop"),  # three tokens
        (["nothing", "lo w"], "hel", "stop"),
        ("h", "", "stop"),
        (["world!", "ld"], "hello wor", "stop"),  # a start that comes to nothing is shown
        ("worm", "hello worldhello", "length"),
        ("ohello w", "hello worldhello", "length"),  # begins at the end: shown all the same
    ],
)
def test_stop_strings_cut_across_tokens(
    server: Server, stop: object, text: str, reason: str
) -> None:
    server.reins.says = b"hello world"
    body = greedy("x", stop=stop)
    whole = server.post(PATH, body).json()["choices"][0]
    assert (whole["text"], whole["finish_reason"]) == (text, reason)
    streamed = joined(stream(server, body))[0]
    assert (streamed["text"], streamed["finish_reason"]) == (text, reason)


def test_a_stop_string_ends_the_engines_work_too(server: Server) -> None:
    server.reins.says = b"ab"
    before = server.metric("kvscope_requests_finished_total", reason="stop")
    answer = server.complete("x", stop="ba", max_tokens=400)
    assert answer["usage"]["completion_tokens"] == 3
    server.wait_until_free()
    assert server.metric("kvscope_requests_finished_total", reason="stop") == before + 1


def test_a_stop_string_ends_one_choice_while_the_others_go_on(server: Server) -> None:
    body = {"prompt": "dice", "n": 3, "seed": 7, "max_tokens": 60, "ignore_eos": True}
    texts = [choice["text"] for choice in server.post(PATH, body).json()["choices"]]
    only_here = set(texts[1][1:]) - set(texts[0] + texts[2] + texts[1][0])
    stop = min(only_here, key=texts[1].index)
    before = server.metric("kvscope_requests_finished_total", reason="length")
    streamed = joined(stream(server, body | {"stop": stop}))
    for choices in (
        server.post(PATH, body | {"stop": stop}).json()["choices"],
        [streamed[index] for index in range(3)],
    ):
        assert [choice["finish_reason"] for choice in choices] == ["length", "stop", "length"]
        assert choices[1]["text"] == texts[1][: texts[1].index(stop)]
        assert [choices[0]["text"], choices[2]["text"]] == [texts[0], texts[2]]
    server.wait_until_free()
    assert server.metric("kvscope_requests_finished_total", reason="length") == before + 2


def test_streams_never_cut_a_character(server: Server) -> None:
    server.reins.says = "né€😀".encode()
    events = stream(server, greedy("x", max_tokens=10))
    texts = [event["choices"][0]["text"] for event in events]
    assert "".join(texts) == "né€😀"
    assert not any("\N{REPLACEMENT CHARACTER}" in text for text in texts)


def test_logprobs_of_each_token(server: Server) -> None:
    logprobs = server.complete("x", logprobs=3, max_tokens=4)["choices"][0]["logprobs"]
    assert {len(values) for values in logprobs.values()} == {4}
    for chosen, best in zip(logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True):
        assert chosen == max(best.values())
        assert chosen <= 0


def test_text_offsets_are_the_same_streamed_and_whole(server: Server) -> None:
    server.reins.says = "aé€bc".encode()
    body = greedy("x", logprobs=0, max_tokens=8, stop="bx")
    whole = server.post(PATH, body).json()["choices"][0]
    assert whole["logprobs"]["text_offset"] == [0, 1, 1, 2, 2, 2, 3, 4]
    offsets = [
        offset
        for event in stream(server, body)
        for offset in event["choices"][0]["logprobs"]["text_offset"]
    ]
    assert offsets == whole["logprobs"]["text_offset"]


def test_models_name_the_limit(server: Server) -> None:
    card = server.client.get("/v1/models").json()["data"][0]
    assert (card["id"], card["object"], card["max_model_len"]) == ("demo", "model", 512)
    assert server.client.get("/health").json() == {"status": "ok"}
    assert server.client.get("/openapi.json").status_code == 200
