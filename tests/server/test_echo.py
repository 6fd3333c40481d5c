"""`echo`: the prompt before the answer, with its log probabilities, and by itself."""

from typing import Any

import pytest

from engine.server.generation import ECHOED_AT_ONCE
from tests.support.server import Server, greedy
from tests.support.sse import chunks, joined

PATH = "/v1/completions"


def choices_of(server: Server, **body: Any) -> list[dict[str, Any]]:
    response = server.post(PATH, greedy(**body))
    assert response.status_code == 200, response.text
    listed: list[dict[str, Any]] = response.json()["choices"]
    return listed


def streamed(server: Server, body: dict[str, Any]) -> list[dict[str, Any]]:
    with server.client.stream("POST", PATH, json=body | {"stream": True}) as response:
        assert response.status_code == 200
        return chunks(response.iter_lines())


def logprobs_in(events: list[dict[str, Any]], index: int) -> dict[str, list[Any]]:
    """The log probabilities of one choice, its chunks put together."""
    together: dict[str, list[Any]] = {}
    for event in events:
        for choice in event["choices"]:
            if choice["index"] == index:
                for key, values in choice["logprobs"].items():
                    together.setdefault(key, []).extend(values)
    return together


@pytest.mark.parametrize("prompt", ["naïve 😀", list("naïve 😀".encode())], ids=["text", "ids"])
def test_the_text_begins_with_the_prompt(server: Server, prompt: object) -> None:
    (plain,) = choices_of(server, prompt=prompt)
    (echoed,) = choices_of(server, prompt=prompt, echo=True)
    assert echoed["text"] == "naïve 😀" + plain["text"]
    assert echoed["token_ids"] == plain["token_ids"], "what was generated, as in vLLM"
    assert joined(streamed(server, greedy(prompt, echo=True)))[0] == {
        key: echoed[key] for key in ("text", "token_ids", "finish_reason")
    }


def test_each_choice_begins_with_its_own_prompt(server: Server) -> None:
    body = {"prompt": ["first", "second"], "n": 2, "echo": True, "logprobs": 1, "max_tokens": 3}
    texts = [choice["text"] for choice in choices_of(server, **body)]
    assert [text[:5] for text in texts] == ["first", "first", "secon", "secon"]
    events = streamed(server, greedy(**body))
    whole = choices_of(server, **body)
    for index in range(4):
        assert logprobs_in(events, index) == whole[index]["logprobs"]
        assert joined(events)[index]["text"] == texts[index]


def test_log_probabilities_begin_with_the_prompts(server: Server) -> None:
    prompt = "a prompt of several blocks, found in the cache by others"
    (first,) = choices_of(server, prompt=prompt, max_tokens=4, logprobs=2)
    (echoed,) = choices_of(server, prompt=prompt, max_tokens=4, logprobs=2, echo=True)
    logprobs, tail = echoed["logprobs"], first["logprobs"]
    assert logprobs["tokens"] == [*prompt, *tail["tokens"]]
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert all(value <= 0 for value in logprobs["token_logprobs"][1:])
    assert logprobs["text_offset"] == list(range(len(prompt))) + [
        len(prompt) + offset for offset in tail["text_offset"]
    ]
    assert logprobs["token_logprobs"][len(prompt) :] == pytest.approx(tail["token_logprobs"])


def test_a_generated_text_echoed_has_the_same_log_probabilities(server: Server) -> None:
    """A token has the same log probability in a prompt as when it was drawn."""
    (drawn,) = choices_of(server, prompt=[1, 2, 3], max_tokens=40, logprobs=0)
    whole = [1, 2, 3, *drawn["token_ids"]]
    (echoed,) = choices_of(server, prompt=whole, max_tokens=0, echo=True, logprobs=0)
    assert echoed["logprobs"]["token_logprobs"][3:] == pytest.approx(
        drawn["logprobs"]["token_logprobs"], abs=1e-3
    )


@pytest.mark.parametrize("logprobs", [None, 2])
@pytest.mark.parametrize("n", [1, 3])
def test_no_tokens_and_echo_give_the_prompt_alone(
    server: Server, logprobs: int | None, n: int
) -> None:
    body = {"prompt": "just this", "max_tokens": 0, "echo": True, "logprobs": logprobs, "n": n}
    response = server.post(PATH, body)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert [choice["text"] for choice in answer["choices"]] == ["just this"] * n
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (9, 0)
    if logprobs is not None:
        for choice in answer["choices"]:
            assert choice["logprobs"]["tokens"] == list("just this")
    events = streamed(server, body)
    assert [joined(events)[i]["text"] for i in range(n)] == ["just this"] * n
    if logprobs is not None:
        assert logprobs_in(events, 0) == answer["choices"][0]["logprobs"]


def test_all_choices_begin_with_the_same_log_probabilities(server: Server) -> None:
    """They are computed for the first sample alone; the others fork from it."""
    prompt = "what several samples have in common"
    body = {"prompt": prompt, "temperature": 1, "seed": 5, "logprobs": 2, "echo": True}
    (alone,) = choices_of(server, **body)
    expected = alone["logprobs"]["token_logprobs"][1 : len(prompt)]
    for settings in ({"n": 4}, {"n": 2, "best_of": 6}):
        choices = choices_of(server, **body, **settings)
        assert len({tuple(choice["token_ids"]) for choice in choices}) == len(choices)
        leading = [
            {key: values[: len(prompt)] for key, values in choice["logprobs"].items()}
            for choice in choices
        ]
        assert leading == [leading[0]] * len(choices)
        assert leading[0]["tokens"] == list(prompt)
        assert leading[0]["token_logprobs"][0] is None
        assert leading[0]["token_logprobs"][1:] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("logprobs", [None, 1])
def test_the_best_samples_are_judged_by_the_answer_alone(
    server: Server, logprobs: int | None
) -> None:
    body = {"prompt": ["a", "a longer prompt"], "temperature": 1, "seed": 5, "echo": True}
    drawn = choices_of(server, **body, n=4, logprobs=0)

    def mean(choice: dict[str, Any]) -> float:
        answer = choice["logprobs"]["token_logprobs"][-len(choice["token_ids"]) :]
        return sum(answer) / len(answer)

    best = choices_of(server, **body, n=2, best_of=4, logprobs=logprobs)
    assert [choice["text"] for choice in best] == [
        choice["text"]
        for first in (0, 4)
        for choice in sorted(drawn[first : first + 4], key=mean)[:-3:-1]
    ]
    assert {choice["logprobs"] is None for choice in best} == {logprobs is None}


@pytest.mark.parametrize("logprobs", [None, 2])
@pytest.mark.parametrize("settings", [{"n": 32}, {"n": 3, "best_of": 20}], ids=str)
def test_more_choices_than_places_end_with_the_prompt(
    server: Server, settings: dict[str, int], logprobs: int | None
) -> None:
    """The server runs 16 sequences at once: some fork, and some wait for a place."""
    body = {"prompt": "just this", "max_tokens": 0, "echo": True, "logprobs": logprobs}
    response = server.post(PATH, body | settings)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert [choice["text"] for choice in answer["choices"]] == ["just this"] * settings["n"]
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
    assert answer["usage"]["completion_tokens"] == 0
    first = answer["choices"][0]["logprobs"]
    assert all(choice["logprobs"] == first for choice in answer["choices"])
    assert (first is None) == (logprobs is None)


def test_a_prompt_of_full_length_can_be_scored(server: Server) -> None:
    body = {"prompt": [5] * 512, "echo": True, "logprobs": 0}
    (whole,) = server.post(PATH, body | {"max_tokens": 0}).json()["choices"]
    assert len(whole["logprobs"]["token_logprobs"]) == 512
    events = streamed(server, body | {"max_tokens": 0})
    assert len(events) == 512 / ECHOED_AT_ONCE, "no piece takes long to write"
    assert logprobs_in(events, 0) == whole["logprobs"]
    assert joined(events)[0]["text"] == whole["text"]
    error = server.post(PATH, body | {"max_tokens": 1}).json()["error"]
    assert error["param"] == "prompt"


def test_stop_strings_are_looked_for_in_the_answer_only(server: Server) -> None:
    server.reins.says = b"hello world"
    (choice,) = choices_of(server, prompt="wor", stop="wor", echo=True, logprobs=0)
    assert (choice["text"], choice["finish_reason"]) == ("worhello ", "stop")


def test_a_prompt_with_log_probabilities_is_not_looked_up(server: Server) -> None:
    prompt = [17] * 64
    server.complete(prompt)
    queried = server.metric("kvscope_prefix_cache_queried_tokens_total")
    usage = server.complete(prompt, echo=True, logprobs=0)["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert server.metric("kvscope_prefix_cache_queried_tokens_total") == queried
    usage = server.complete(prompt, echo=True)["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 48}


def test_a_failure_ends_all_choices_that_wait_for_the_prompt(own_server: Server) -> None:
    own_server.reins.failure = RuntimeError("broken")
    body = greedy("abc", n=3, echo=True, logprobs=1)
    assert own_server.post(PATH, body).status_code == 500
