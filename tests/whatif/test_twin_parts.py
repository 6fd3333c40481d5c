"""The parts of a twin: contents made from names, clients, and the fit of a step's duration."""

import time
from random import Random
from types import SimpleNamespace

import pytest

from kvscope.twin.clients import link_followers
from kvscope.twin.replay import Call, Duration, figures
from kvscope.twin.step_time import fitted, nonnegative
from kvscope_events.events import Batch, RequestArrived
from kvscope_events.limits import MAX_COUNT
from kvscope_events.observers.vllm.requests import Sequence, arrival
from kvscope_events.wire.frame import decode_batch, encode_batch

SIZE = 16


def call(number: int, came: float, ended: float, **further: object) -> Call:
    made = Call(number, came, 32, 8, 8, **further)  # type: ignore[arg-type]
    made.times = [came + 0.1, ended]
    return made


def test_tokens_are_equal_exactly_where_names_are() -> None:
    one = Call(1, 0.0, 64, 8, 8, names=[2**55 + 7, 2**54, None, 5])
    other = Call(2, 0.0, 64, 8, 8, names=[2**55 + 7, 2**54 + 1, None, 5])
    blocks = [
        (one.tokens(i, i + SIZE, SIZE), other.tokens(i, i + SIZE, SIZE)) for i in range(0, 80, SIZE)
    ]
    assert [a == b for a, b in blocks] == [True, False, False, True, False]
    whole = one.tokens(0, 70, SIZE)
    assert len(whole) == 70
    assert all(0 <= token < 2**32 for token in whole)
    assert whole[13:37] == one.tokens(13, 37, SIZE)
    assert [one.tokens(i, i + 1, SIZE)[0] for i in range(70)] == whole


def test_figures_count_from_the_front_end_and_leave_out_what_is_not_known() -> None:
    found = figures([call(1, 1.0, 2.0), Call(2, 0.0, 1, 1, None)], 3, 0, 0)
    assert found["ttft_p50"] == pytest.approx(0.1)
    assert found["itl_p95"] == pytest.approx(0.9)
    assert found["tokens_per_second"] == pytest.approx(2.0)
    assert (found["preemptions"], found["hit_ratio"]) == (3, None)
    assert figures([], 0, 0, 0)["ttft_p50"] is None


def test_an_open_loop_is_not_taken_for_clients_that_wait() -> None:
    random = Random(1)
    at, calls = 0.0, []
    for number in range(1, 200):
        at += random.expovariate(4.0)
        calls.append(call(number, at, at + random.uniform(0.5, 3.0)))
    found = link_followers(calls)
    assert not found.is_closed
    assert found.followers == 0


@pytest.mark.parametrize("think", [0.02, 0.09])
def test_clients_that_ask_again_after_an_answer_are_recognised(think: float) -> None:
    random, calls, number = Random(2), [], 0
    for client in range(5):
        at = 0.01 * client
        while at < 60:
            number += 1
            ended = at + random.uniform(0.5, 2.0)
            calls.append(call(number, at, ended))
            at = ended + think
    found = link_followers(calls)
    assert found.is_closed
    assert found.followers == len(calls) - 5


def test_a_call_that_repeats_an_answer_follows_it() -> None:
    calls = [call(1, 0.0, 5.0), call(2, 20.0, 25.0, after=1), call(3, 21.0, 22.0, after=9)]
    assert link_followers(calls).followers == 1
    assert calls[2].after is None, "its call is not in the recording"


def test_the_fit_finds_the_costs_that_made_the_steps() -> None:
    random = Random(3)
    rows, seconds = [], []
    for _ in range(2000):
        decodes = random.randrange(1, 40)
        chunks = random.choice([0, 0, 0, 1, 2])
        prompt = sum(random.randrange(20, 600) for _ in range(chunks))
        row = [float(decodes), decodes * 0.7, float(prompt), float(chunks), prompt * 2e-4, 0.0]
        rows.append(row)
        cost = 0.004 + 0.0002 * row[1] + 30e-6 * prompt + 0.003 * chunks + 0.0001 * decodes
        seconds.append(cost * random.uniform(0.95, 1.05))
    seconds[7] *= 60  # a pause of the machine
    ends = [0.1 * i for i in range(1, 2001)]
    fit = fitted(rows, seconds, ends, [1e-4])
    assert fit.error < 0.05
    duration = Duration(fit.document(), 0.5)
    for row in ([4.0, 2.8, 0.0, 0.0, 0.0, 0.0], [4.0, 2.8, 300.0, 1.0, 0.06, 0.0]):
        true = 0.004 + 0.0002 * row[1] + 30e-6 * row[2] + 0.003 * row[3] + 0.0001 * row[0]
        assert duration.mean(row) == pytest.approx(true, rel=0.05)
    drawn = sum(duration.drawn(rows[i], ends[i]) for i in range(2000))
    assert drawn == pytest.approx(sum(seconds), rel=0.1)
    assert not fit.is_ambiguous


def test_what_always_comes_together_is_charged_to_either() -> None:
    rows = [[4.0, 2.0, 0.0, 0.0, 0.0, 0.0], [4.0, 2.0, 100.0, 1.0, 0.01, 1.0]] * 50
    seconds = [0.005, 0.012] * 50
    fit = fitted(rows, seconds, [0.1 * i for i in range(1, 101)], [0.0])
    assert fit.is_ambiguous
    chunk = [4.0, 2.0, 100.0, 1.0, 0.01, 0.0]  # a further one of a long prompt
    costs = [Duration(fit.document(chunks=to), 0.0).mean(chunk) for to in (True, False)]
    assert costs[0] > costs[1]
    both = [4.0, 2.0, 100.0, 1.0, 0.01, 1.0]
    for to in (True, False):
        assert Duration(fit.document(chunks=to), 0.0).mean(both) == pytest.approx(0.012, rel=0.02)


def test_a_term_that_would_be_negative_is_none() -> None:
    rows = [[(0, 1.0), (1, float(x))] for x in range(1, 9)]
    assert nonnegative(rows, [10.0 - x for x in range(1, 9)], 3) == pytest.approx([5.5, 0.0, 0.0])
    assert nonnegative(rows, [2.0 + 3 * x for x in range(1, 9)], 3) == pytest.approx([2, 3, 0])


@pytest.mark.parametrize(
    ("priority", "age", "told"),
    [(10**30, 2.0, MAX_COUNT), (-(10**30), 2.0, -MAX_COUNT), (3, -60.0, 3), (None, 2.0, None)],
)
def test_a_vllm_says_when_a_call_came_whatever_its_client_chose(
    priority: int | None, age: float, told: int | None
) -> None:
    request = SimpleNamespace(
        num_prompt_tokens=3, max_tokens=5, priority=priority, arrival_time=time.time() - age
    )
    events = list(arrival(request, Sequence(1, 0)))
    (arrived, _) = decode_batch(encode_batch(Batch(1, 0, events)))[0].events
    assert isinstance(arrived, RequestArrived)
    assert arrived.priority == told
    assert arrived.taken_ns is not None
    assert arrived.taken_ns / 1e9 == pytest.approx(max(0.0, age), abs=0.5)
