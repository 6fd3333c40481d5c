"""Requests of the scenarios: shared prefixes, growing conversations, nothing beyond the context."""

import json
from collections import Counter
from itertools import pairwise

import pytest

from kvscope.load import LoadSpec, Scenario
from kvscope.load.scenarios import (
    CHAT_COMPLETIONS,
    COMPLETIONS,
    Job,
    JobSource,
    Reply,
    make_source,
)
from kvscope.load.text import TextCost

CONTEXT = 1024
COST = TextCost(bytes_per_token=1.0, message_overhead=8)


def make_spec(scenario: Scenario, seed: int = 0, sessions: int = 4) -> LoadSpec:
    return LoadSpec(
        url="http://peer", scenario=scenario, seed=seed, num_sessions=sessions, max_tokens=32
    )


def messages(job: Job) -> list[dict[str, str]]:
    found = job.body["messages"]
    assert isinstance(found, list)
    return found


def num_tokens(job: Job) -> int:
    """As a byte-level model counts them, its template eight bytes a message."""
    if job.path == COMPLETIONS:
        prompt = job.body["prompt"]
        assert isinstance(prompt, list)
        return len(prompt)
    return sum(len(message["content"].encode()) + 8 for message in messages(job))


def play(source: JobSource, count: int, text: str = "fine") -> list[Job]:
    """One request after the other, each answered."""
    jobs = []
    for _ in range(count):
        job = source.next_job()
        reply = Reply(text=text, prompt_tokens=num_tokens(job), output_tokens=len(text))
        job.finished(reply)
        jobs.append(job)
    return jobs


ALL = [Scenario.CHAT, Scenario.RAG, Scenario.AGENTS, Scenario.BURSTS, Scenario.MIX]


@pytest.mark.parametrize("scenario", ALL)
def test_the_seed_decides_the_workload(scenario: Scenario) -> None:
    def bodies(seed: int) -> list[str]:
        source = make_source(make_spec(scenario, seed), CONTEXT, COST)
        return [json.dumps(job.body) for job in play(source, 40)]

    assert bodies(1) == bodies(1)
    assert bodies(1) != bodies(2)


@pytest.mark.parametrize("scenario", ALL)
@pytest.mark.parametrize("context", [160, 1024, 131_072])
def test_prompt_and_reply_fit_the_context(scenario: Scenario, context: int) -> None:
    source = make_source(make_spec(scenario), context, COST)
    # Noise decodes to U+FFFD: one token generated, three bytes sent back.
    for job in play(source, 200, text="\ufffd" * 32):
        max_tokens = job.body["max_tokens"]
        assert isinstance(max_tokens, int)
        assert 8 <= max_tokens <= 32
        assert num_tokens(job) + max_tokens <= context


@pytest.mark.parametrize("scenario", [Scenario.CHAT, Scenario.AGENTS])
def test_a_conversation_resends_all_of_it_with_the_replies(scenario: Scenario) -> None:
    turns = [
        messages(job)
        for job in play(make_source(make_spec(scenario, sessions=1), CONTEXT, COST), 4)
    ]
    for before, after in pairwise(turns):
        assert after[: len(before)] == before
        assert after[len(before)] == {"role": "assistant", "content": "fine"}
        assert after[len(before) + 1]["role"] == "user"
        assert len(after) == len(before) + 2
    assert turns[1][-1]["content"].startswith("Tool result: ") == (scenario is Scenario.AGENTS)


def test_sessions_take_turns_and_are_replaced_when_they_end() -> None:
    jobs = play(make_source(make_spec(Scenario.CHAT, sessions=3), 65_536, COST), 48)
    first_words = [messages(job)[1]["content"] for job in jobs]
    assert len(set(first_words[:3])) == 3
    assert first_words[3:6] == first_words[:3]
    assert max(Counter(first_words).values()) == 8  # turns of a chat
    assert len(set(first_words)) == 6  # 48 requests, 8 turns each


def test_more_in_flight_than_sessions_are_let_in_and_fall_away() -> None:
    source = make_source(make_spec(Scenario.CHAT, sessions=2), CONTEXT, COST)
    flying = [source.next_job() for _ in range(5)]
    assert len({messages(job)[1]["content"] for job in flying}) == 5
    for job in flying:
        job.finished(Reply(text="fine", prompt_tokens=None, output_tokens=None))
    later = play(source, 8)
    assert len({messages(job)[1]["content"] for job in later[:4]}) == 2


def test_a_failed_turn_ends_its_conversation() -> None:
    source = make_source(make_spec(Scenario.CHAT, sessions=1), CONTEXT, COST)
    first = source.next_job()
    first.finished(None)
    assert messages(source.next_job())[1] != messages(first)[1]


def test_replies_count_at_least_what_was_generated() -> None:
    source = make_source(make_spec(Scenario.CHAT, sessions=1), CONTEXT, COST)
    first = source.next_job()
    # Noise of a large vocabulary: more tokens than its bytes let expect.
    first.finished(Reply(text="a", prompt_tokens=num_tokens(first), output_tokens=CONTEXT))
    assert len(messages(source.next_job())) == 2


def test_chats_share_four_system_prompts() -> None:
    jobs = play(make_source(make_spec(Scenario.CHAT, sessions=40), CONTEXT, COST), 40)
    systems = Counter(messages(job)[0]["content"] for job in jobs)
    assert len(systems) == 4
    assert max(systems.values()) > 10


def test_documents_are_few_and_questions_new() -> None:
    jobs = play(make_source(make_spec(Scenario.RAG), CONTEXT, COST), 60)
    prompts = [tuple(job.body["prompt"]) for job in jobs if isinstance(job.body["prompt"], list)]
    assert len({prompt[:500] for prompt in prompts}) == 8
    assert len(set(prompts)) == 60
    assert all(0 <= token < 256 for prompt in prompts for token in prompt)


def test_mix_has_chats_agents_and_questions() -> None:
    jobs = play(make_source(make_spec(Scenario.MIX), CONTEXT, COST), 60)
    assert {job.body["user"] for job in jobs} == {"chat", "agents", "rag"}
    assert {job.path for job in jobs} == {COMPLETIONS, CHAT_COMPLETIONS}


def test_a_context_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="max_model_len 128 leaves 96 tokens for prompts"):
        make_source(make_spec(Scenario.CHAT), 128, COST)
