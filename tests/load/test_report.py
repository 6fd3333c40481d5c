"""The report's numbers against brute force, and the server's counters before and after."""

import random

import pytest

from kvscope.load.client import Exchange, PromptDetails, Usage
from kvscope.load.counters import Counters, HitRate, parse_counters
from kvscope.load.report import Tally


def make_exchange(rng: random.Random) -> Exchange:
    inter_token = [rng.uniform(0.001, 0.2) for _ in range(rng.randint(0, 30))]
    ttft = rng.uniform(0.01, 2.0)
    return Exchange(
        text="x",
        usage=Usage(
            prompt_tokens=rng.randint(1, 5000),
            output_tokens=len(inter_token) + 1,
            details=PromptDetails(cached_tokens=rng.choice([None, 0, 16])),
        ),
        num_chunks=len(inter_token) + 1,
        ttft=ttft,
        inter_token=inter_token,
        e2e=ttft + sum(inter_token),
    )


def test_numbers_equal_brute_force() -> None:
    rng = random.Random(7)
    exchanges = [make_exchange(rng) for _ in range(500)]
    tally = Tally()
    for exchange in exchanges:
        tally.succeeded(exchange)
    told = [e for e in exchanges if e.usage.cached_tokens is not None]
    assert tally.ok == 500
    assert tally.prompt_tokens == sum(e.usage.prompt_tokens or 0 for e in exchanges)
    assert tally.output_tokens == sum(e.usage.output_tokens or 0 for e in exchanges)
    assert tally.output_tokens_counted
    assert tally.hit_rate == HitRate(
        queried_tokens=sum(e.usage.prompt_tokens or 0 for e in told),
        hit_tokens=sum(e.usage.cached_tokens or 0 for e in told),
    )
    long = [e for e in exchanges if e.inter_token]
    samples = {
        "ttft": [e.ttft or 0.0 for e in exchanges],
        "itl": [gap for e in exchanges for gap in e.inter_token],
        "tpot": [sum(e.inter_token) / len(e.inter_token) for e in long],
        "e2e": [e.e2e for e in exchanges],
    }
    for name, values in samples.items():
        summary = getattr(tally, name).summary()
        assert summary.count == len(values)
        assert summary.mean == pytest.approx(sum(values) / len(values))
        assert summary.p90 == pytest.approx(
            sorted(values)[-(-9 * len(values) // 10) - 1], rel=0.011
        )


def test_what_no_reply_tells_is_unknown_not_zero() -> None:
    tally = Tally()
    tally.succeeded(Exchange(text="abc", num_chunks=3, ttft=0.1, inter_token=[0.1, 0.1], e2e=0.3))
    assert tally.prompt_tokens is None
    assert tally.hit_rate is None
    assert (tally.output_tokens, tally.output_tokens_counted) == (3, False)


def test_counters_prefer_kvscope_and_its_first_lookups() -> None:
    exposition = (
        'kvscope_prefix_cache_queried_tokens_total{engine="0",phase="first"} 60\n'
        'kvscope_prefix_cache_queried_tokens_total{engine="1",phase="first"} 40\n'
        'kvscope_prefix_cache_queried_tokens_total{engine="0",phase="resumed"} 1000\n'
        'kvscope_prefix_cache_hit_tokens_total{engine="0",phase="first"} 25\n'
        'vllm:prefix_cache_queries_total{engine="0"} 1100\n'
        'vllm:prefix_cache_hits_total{engine="0"} 900\n'
        'vllm:num_preemptions_total{engine="0"} 2\n'
    )
    assert parse_counters(exposition) == Counters(queried_tokens=100, hit_tokens=25, preemptions=2)
    assert parse_counters("up 1\n") == Counters()


def test_a_counter_that_began_anew_gives_no_rate() -> None:
    before = Counters(queried_tokens=100, hit_tokens=50, preemptions=9)
    after = Counters(queried_tokens=300, hit_tokens=150, preemptions=1)
    rate = after.hit_rate_since(before)
    assert rate is not None
    assert (rate.queried_tokens, rate.hit_tokens, rate.ratio) == (200, 100, 0.5)
    assert after.preemptions_since(before) is None
    assert before.hit_rate_since(after) is None
    assert after.hit_rate_since(Counters()) is None
    assert HitRate(queried_tokens=0, hit_tokens=0).ratio is None
