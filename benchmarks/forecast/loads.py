"""Loads on which the forecast is scored, made from a seed."""

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from benchmarks.forecast.simulator import Call


class Load(NamedTuple):
    """Arriving calls, and a pool that is sometimes too small for them."""

    calls: Callable[[Random, float], Iterator[Call]]
    """In order of arrival, for this many seconds."""
    num_blocks: int
    max_num_seqs: int = 256


def lognormal(random: Random, median: float, sigma: float, most: int) -> int:
    return max(1, min(most, round(random.lognormvariate(math.log(median), sigma))))


def chat(random: Random) -> tuple[int, int, int]:
    return lognormal(random, 200, 0.8, 2_000), lognormal(random, 150, 0.7, 1_000), 1_000


def arrivals(random: Random, seconds: float, rate: float) -> Iterator[float]:
    at = 0.0
    while (at := at + random.expovariate(rate)) < seconds:
        yield at


def steady(random: Random, seconds: float, rate: float = 2.0) -> Iterator[Call]:
    for at in arrivals(random, seconds, rate):
        yield Call(at, *chat(random))


def wandering(random: Random, seconds: float) -> Iterator[Call]:
    """A rate without any pattern (Ornstein and Uhlenbeck), and answers of which one in twelve is
    long: nothing announces the next exhaustion."""
    memory, level = 120.0, 0.0
    keep = math.exp(-1 / memory)
    spread = 0.35 * math.sqrt(1 - keep * keep)
    for second in range(int(seconds)):
        level = keep * level + random.gauss(0, spread)
        for at in arrivals(random, 1.0, 1.1 * math.exp(level)):
            prompt, output, most = chat(random)
            if random.random() < 1 / 12:
                output = random.randint(800, 3_000)
            yield Call(second + at, prompt, output, max(most, 3_000))


LOADS = {
    "steady": Load(steady, 1_400),
    "wandering": Load(wandering, 3_000),
    "capped": Load(lambda random, seconds: steady(random, seconds, 2.2), 1_400, 44),
}
