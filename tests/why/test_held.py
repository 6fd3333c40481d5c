"""Incidents that last: asked twenty times, `why` names the same cause, and the right one; from the
first request on, after a calm, and after a harmless rise long or shortly before."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from kvscope_exporter.answers.diagnosis.question import WhyAnswer
from kvscope_exporter.catalogue.incident import Kind
from tests.support.paced import Call
from tests.why.stage import GIB, Stage, chat

SECONDS, FIRST, TIMES = 200.0, 40.0, 20
"""Length of an incident, the moment of the first question, and the number of questions."""


def asked(stage: Stage, calls: list[Call]) -> list[WhyAnswer]:
    answers, begin = [], 0.0
    for number in range(TIMES):
        end = FIRST + number * (SECONDS - FIRST) / TIMES
        part = [replace(call, at=call.at - begin) for call in calls if begin <= call.at < end]
        stage.play(part, end - begin)
        answers.append(stage.why())
        begin = end
    return answers


def kinds(answers: list[WhyAnswer]) -> set[str | None]:
    return {answer.chain[0].kind if answer.chain else None for answer in answers}


def slow(stage: Stage) -> Iterator[Call]:
    stage.step_ns *= 3
    stage.token_ns *= 3
    return chat(2, SECONDS)


def hot(stage: Stage) -> Iterator[Call]:
    stage.gpu.slowed = 0x40
    return slow(stage)


def neighbour(stage: Stage) -> Iterator[Call]:
    stage.gpu.neighbour_bytes = int(7.2 * GIB)
    return chat(2, SECONDS)


def longer_prompts(stage: Stage) -> Iterator[Call]:
    return chat(2, SECONDS, question=(90, 160))


def more(stage: Stage) -> Iterator[Call]:
    return chat(2, SECONDS, rate=12)


def other_template(stage: Stage) -> Iterator[Call]:
    return (replace(each, prompt=[number + 300, *each.prompt]) for number, each in _numbered())


def _numbered() -> Iterator[tuple[int, Call]]:
    return enumerate(chat(2, SECONDS))


def samples(stage: Stage) -> Iterator[Call]:
    """One tenant of several asks for eight samples of the usual prompts."""
    usual = (replace(each, tenant=f"t{number % 5}") for number, each in _numbered())
    greedy = (replace(each, samples=8, tenant="greedy") for each in chat(31, SECONDS, rate=1.2))
    return iter(sorted([*usual, *greedy], key=lambda call: call.at))


def agents(stage: Stage) -> Iterator[Call]:
    """Twenty-four clients and four slots; nearly all of the pool is free."""
    stage.agents, stage.errands = 24, chat(5, 7200)
    return iter(())


def below_a_block(stage: Stage) -> Iterator[Call]:
    """Prompts of 116 tokens, of which 96 are equal, and blocks of 128."""
    rng, at = Random(3), 0.0
    while (at := at + rng.expovariate(6)) < SECONDS:
        own = [rng.randrange(9, 200) for _ in range(20)]
        yield Call(at=at, prompt=[7] * 96 + own, output_tokens=8)


def impatient(stage: Stage) -> Iterator[Call]:
    """Two long answers have the only slots; all others give up, and come again."""
    yield from [Call(at=0, prompt=[3] * 64, output_tokens=4000)] * 2
    yield from (replace(each, at=2 + number / 10) for number, each in enumerate(chat(4, 16)))


def wide_chunks(stage: Stage) -> Iterator[Call]:
    return chat(2, SECONDS, rate=3, question=(40, 80))


def long_prompts(stage: Stage) -> Iterator[Call]:
    """Beside answers of 100 tokens and more; a step has room for all of such a prompt."""
    long = chat(5, SECONDS, rate=0.4, template=1, question=(110, 126), answer=(1, 2))
    return iter(sorted([*chat(2, SECONDS, answer=(100, 200)), *long], key=lambda call: call.at))


class Case(NamedTuple):
    load: Callable[[Stage], Iterator[Call]]
    first: Kind | None
    """The cause named when it is there from the first request on; None: no other pace is known."""
    later: Kind
    remedy: str
    """Words of it."""
    rate: float = 1.5
    """Requests a second before it."""
    stage: Mapping[str, Any] = MappingProxyType({})


CASES = {
    "slow": Case(slow, None, "slow_steps", "another process"),
    "hot": Case(hot, None, "slowed_down", "cooling"),
    "neighbour": Case(neighbour, "out_of_memory", "neighbour", "pid 4242"),
    "longer prompts": Case(longer_prompts, "pool_full", "longer_prompts", ""),
    "more": Case(more, "sequence_limit", "more_requests", "--max-num-seqs"),
    "template": Case(other_template, None, "new_content", "template"),
    "samples": Case(samples, "sequence_limit", "more_requests", "", 1.5, {"num_blocks": 900}),
    "agents": Case(
        agents, "sequence_limit", "more_requests", "--max-num-seqs", 0.1, {"max_num_seqs": 4}
    ),
    "below a block": Case(
        below_a_block,
        *("below_block", "below_block", "--block-size", 0.0),
        {"block_size": 128, "num_blocks": 400},
    ),
    "impatient": Case(
        impatient,
        *("sequence_limit", "retries", "", 0.1),
        {"max_num_seqs": 2, "num_blocks": 900, "patience": 2.0, "asks_again": True},
    ),
    "token budget": Case(
        wide_chunks,
        *("token_budget", "more_requests", "--max-num-batched-tokens", 0.5),
        {"max_num_batched_tokens": 64, "num_blocks": 3900},
    ),
    "long prompts": Case(
        long_prompts,
        *("interference", "longer_prompts", "--max-num-batched-tokens 2048 → 512", 1.5),
        {
            "max_num_batched_tokens": 2048,
            "num_blocks": 4000,
            "bytes_per_block": 1 << 16,
            "token_ns": 400_000,
        },
    ),
}
WHOLE = [pytest.param(name, id=name.replace(" ", "_")) for name in CASES]


@pytest.mark.parametrize("name", WHOLE)
def test_from_the_first_request_on(name: str) -> None:
    case = CASES[name]
    stage = Stage(**case.stage)
    answers = asked(stage, [*case.load(stage)])
    last = answers[-1]
    assert kinds(answers) == {case.first}, last.sentence
    if case.first not in (None, "out_of_memory"):
        assert "since the start" in last.sentence, last.sentence


@pytest.mark.parametrize("calm", [180, pytest.param(900, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", WHOLE)
def test_after_a_harmless_rise(name: str, calm: int) -> None:
    case = CASES[name]
    stage = Stage(**case.stage)
    stage.play(chat(9, 300, rate=case.rate / 3) if case.rate else (), 300)
    stage.play(chat(1, calm, rate=case.rate) if case.rate else (), calm)
    assert stage.why().chain == []
    answers = asked(stage, [*case.load(stage)])
    last = answers[-1]
    assert kinds(answers) == {case.later}, last.sentence
    assert case.remedy in last.remedy, last.sentence
    assert abs(last.chain[0].at_seconds - (stage.now_ns / 1e9 - SECONDS + 8)) < 80
