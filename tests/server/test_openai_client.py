"""The official `openai` client drives every parameter: each is taken, and has its effect."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from openai import OpenAI
from openai.types import Completion
from openai.types.chat import ChatCompletion

from kvscope_engine.server.protocol import ChatCompletionRequest, CompletionRequest
from tests.support.server import Server, make_engine_config, serving
from tests.support.waiting import WAIT_SECONDS, wait_for

USER: Any = [{"role": "user", "content": "hello"}]


@pytest.fixture
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=WAIT_SECONDS
    ) as talking:
        yield talking


def complete(client: OpenAI, prompt: Any = "hello", **settings: Any) -> Completion:
    """Not random unless asked, and not ended by the model."""
    extra = {"ignore_eos": True, "return_token_ids": True, **settings.pop("extra", {})}
    settings = {"temperature": 0, "max_tokens": 24} | settings
    answer: Completion = client.completions.create(
        model="demo", prompt=prompt, extra_body=extra, **settings
    )
    return answer


def ids(answer: Completion, choice: int = 0) -> list[int]:
    found: Any = answer.choices[choice]
    listed: list[int] = found.token_ids
    return listed


def chat(client: OpenAI, **settings: Any) -> ChatCompletion:
    extra = {"ignore_eos": True, **settings.pop("extra", {})}
    settings = {"temperature": 0, "max_tokens": 12} | settings
    answer: ChatCompletion = client.chat.completions.create(
        model="demo", messages=USER, extra_body=extra, **settings
    )
    return answer


TAKEN: dict[str, Any] = {
    "model": "demo",
    "max_tokens": 5,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 10,
    "min_p": 0.05,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.1,
    "logit_bias": {"65": 2.5},
    "n": 2,
    "seed": 7,
    "stop": ["~", "|"],
    "stop_token_ids": [1, 2],
    "ignore_eos": True,
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "user": "somebody",
    "priority": 0,
    "cache_salt": "grain",
    "return_token_ids": True,
}
OF_COMPLETIONS = {"prompt": "hello", "logprobs": 2}
OF_CHATS = {"messages": USER, "max_completion_tokens": 5, "logprobs": True, "top_logprobs": 2}


def test_all_parameters_at_once(client: OpenAI) -> None:
    for body, path, fields in (
        (TAKEN | OF_COMPLETIONS, "/completions", CompletionRequest.__struct_fields__),
        (TAKEN | OF_CHATS, "/chat/completions", ChatCompletionRequest.__struct_fields__),
    ):
        assert body.keys() == set(fields), "the test leaves none out"
        answer = client.post(path, body=body, cast_to=object, options={})
        assert answer is not None


def test_both_apis_stream_with_types_of_their_own(client: OpenAI) -> None:
    shared: Any = {"model": "demo", "max_tokens": 6, "seed": 1, "stream": True}
    shared["stream_options"] = {"include_usage": True}
    texts, chunks = "", list(client.completions.create(prompt="hello", **shared))
    for part in chunks[:-1]:
        texts += part.choices[0].text
    whole = client.completions.create(model="demo", prompt="hello", max_tokens=6, seed=1)
    assert texts == whole.choices[0].text
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage.model_copy(
        update={"prompt_tokens_details": chunks[-1].usage.prompt_tokens_details}
    )
    spoken = "".join(
        part.choices[0].delta.content or ""
        for part in client.chat.completions.create(messages=USER, **shared)
        if part.choices
    )
    said = client.chat.completions.create(model="demo", messages=USER, max_tokens=6, seed=1)
    assert spoken == said.choices[0].message.content


def test_penalties_keep_tokens_from_repeating(client: OpenAI) -> None:
    plain = ids(complete(client, max_tokens=100))
    assert len(set(plain)) < 60, "the demo model soon repeats itself"
    for penalty in ({"presence_penalty": 2.0}, {"frequency_penalty": 2.0}):
        assert len(set(ids(complete(client, max_tokens=100, **penalty)))) > len(set(plain))
    strong = ids(complete(client, max_tokens=100, extra={"repetition_penalty": 1e6}))
    assert len(set(strong)) == 100
    assert not set(strong) & set(b"hello"), "the prompt counts as well"


def test_a_negative_penalty_makes_the_model_say_it_again(client: OpenAI) -> None:
    said = ids(complete(client, max_tokens=60, frequency_penalty=-2.0))
    assert said[-20:] == [said[-1]] * 20


def test_logit_bias_forces_and_forbids(client: OpenAI) -> None:
    assert complete(client, logit_bias={"65": 100}).choices[0].text == "A" * 24
    (first,) = {ids(complete(client, max_tokens=1))[0]}
    assert ids(complete(client, max_tokens=1, logit_bias={str(first): -100}))[0] != first
    said = chat(client, logit_bias={"66": 100}).choices[0].message.content
    assert said == "B" * 12


@pytest.mark.parametrize(
    "narrow", [{"top_p": 1e-9}, {"extra": {"top_k": 1}}, {"extra": {"min_p": 1.0}}], ids=str
)
def test_narrowest_filters_leave_the_likeliest(client: OpenAI, narrow: dict[str, Any]) -> None:
    greedy = ids(complete(client))
    assert ids(complete(client, temperature=2.0, **narrow)) == greedy
    assert ids(complete(client, temperature=2.0)) != greedy


def test_usage_in_every_chunk_counts_up(client: OpenAI) -> None:
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    prompts = ["one", "three"]
    counted: dict[int, list[int]] = {0: [], 1: []}
    *parts, last = client.completions.create(
        model="demo", prompt=prompts, max_tokens=8, stream=True, stream_options=options
    )
    for part in parts:
        index = part.choices[0].index
        assert part.usage is not None
        assert part.usage.prompt_tokens == len(prompts[index])
        counted[index].append(part.usage.completion_tokens)
    for counts in counted.values():
        assert counts == sorted(counts)
        assert 0 < counts[-1] <= 8
    assert last.usage is not None
    assert last.usage.completion_tokens == counted[0][-1] + counted[1][-1]
    first = next(
        iter(
            client.chat.completions.create(
                model="demo", messages=USER, max_tokens=2, stream=True, stream_options=options
            )
        )
    )
    assert first.usage is not None
    assert first.usage.completion_tokens == 0


def test_prompts_with_different_salts_never_share_blocks(client: OpenAI) -> None:
    """Neither by time nor by usage does one tenant learn what another asked."""
    prompt = [11] * 100

    def cached(salt: dict[str, str]) -> int | None:
        usage = complete(client, prompt, max_tokens=1, extra=salt).usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        return usage.prompt_tokens_details.cached_tokens

    tenants = [{}, *({"cache_salt": salt} for salt in ("a", "b", "a ", "A", "ab"))]
    assert [cached(salt) for salt in tenants] == [0] * len(tenants)
    assert [cached(salt) for salt in tenants] == [96] * len(tenants)


def test_a_user_is_no_label(client: OpenAI, server: Server) -> None:
    complete(client, user="a-name-that-nothing-else-has")
    server.wait_until_free()
    assert "a-name-that-nothing-else-has" not in server.client.get("/metrics").text


def test_priority_decides_who_runs_first_under_its_policy() -> None:
    config = make_engine_config(policy="priority", max_num_seqs=1)
    with (
        serving(config) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=WAIT_SECONDS) as client,
        ThreadPoolExecutor(4) as threads,
    ):
        ended: list[str] = []

        def call(name: str, priority: int) -> None:
            complete(client, extra={"priority": priority})
            ended.append(name)

        under_way: list[Future[None]] = []
        with server.reins.held():
            for name, priority in (("first", 0), ("late", 5), ("urgent", -5), ("middle", 1)):
                under_way.append(threads.submit(call, name, priority))
                known = len(under_way)
                wait_for(lambda: server.engine.loop.num_in_flight == known, name)  # noqa: B023
                wait_for(lambda: server.reins.num_running == 1, "the first one runs")
        for future in under_way:
            future.result(WAIT_SECONDS)
    assert ended == ["first", "urgent", "middle", "late"]
