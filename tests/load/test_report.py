"""The report's numbers against brute force."""

import random

from kvscope.load.client import Exchange, PromptDetails, Usage
from kvscope.load.report import Latency, Tally


def make_exchange(rng: random.Random) -> Exchange:
    ttft = rng.uniform(0.01, 2.0)
    output_tokens = rng.randint(1, 30)
    return Exchange(
        text="x",
        usage=Usage(
            prompt_tokens=rng.randint(1, 5000),
            output_tokens=output_tokens,
            details=PromptDetails(cached_tokens=rng.choice([None, 0, 16])),
        ),
        num_chunks=output_tokens,
        ttft=ttft,
        e2e=ttft + rng.uniform(0.0, 3.0),
    )


def test_numbers_equal_brute_force() -> None:
    rng = random.Random(7)
    exchanges = [make_exchange(rng) for _ in range(500)]
    tally = Tally()
    for exchange in exchanges:
        tally.succeeded(exchange)
    said = [e for e in exchanges if e.usage.cached_tokens is not None]
    assert tally.ok == 500
    assert tally.prompt_tokens == sum(e.usage.prompt_tokens or 0 for e in exchanges)
    assert tally.output_tokens == sum(e.usage.output_tokens or 0 for e in exchanges)
    assert tally.output_tokens_counted
    assert tally.cached_of_tokens == sum(e.usage.prompt_tokens or 0 for e in said)
    assert tally.cached_tokens == sum(e.usage.cached_tokens or 0 for e in said)
    for seconds, values in (
        (tally.first_token_seconds, [e.ttft or 0.0 for e in exchanges]),
        (tally.duration_seconds, [e.e2e for e in exchanges]),
    ):
        latency = Latency.of(seconds)
        assert latency is not None
        assert (latency.count, latency.mean) == (500, sum(sorted(values)) / 500)
        assert (latency.p90, latency.max) == (sorted(values)[449], max(values))


def test_what_no_reply_says_is_unknown_not_zero() -> None:
    tally = Tally()
    tally.succeeded(Exchange(text="abc", num_chunks=3, ttft=0.1, e2e=0.3))
    assert tally.prompt_tokens is None
    assert tally.cached_tokens is None
    assert (tally.output_tokens, tally.output_tokens_counted) == (3, False)
    assert Latency.of([]) is None
