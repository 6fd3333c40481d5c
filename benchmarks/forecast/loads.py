"""Loads on which the forecast is scored: what arrives, and a pool that is sometimes too small.

All are made from a seed. The engine is slow, ten tokens a second for each sequence, so that an hour
of it is simulated in seconds: what matters is how long requests live compared with the horizons.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from benchmarks.forecast.clients import Call, Clients, Lengths, Session, Source
from benchmarks.forecast.simulator import Machine

Rate = Callable[[float], float]
Calls = Callable[[Random, float], Iterator[Call] | Source]
"""In order of arrival, for this many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The calls, and the machine."""

    name: str
    what: str
    """For the documentation."""
    machine: Machine
    calls: Calls = field(repr=False)


def lognormal(random: Random, median: float, sigma: float, most: int) -> int:
    return max(1, min(most, round(random.lognormvariate(math.log(median), sigma))))


def chat(random: Random) -> tuple[int, int, int]:
    return lognormal(random, 200, 0.8, 2_000), lognormal(random, 150, 0.7, 1_000), 1_000


def reasoning(random: Random) -> tuple[int, int, int]:
    """Most answers are short; one in a hundred is sixty times as long."""
    output = 10 + int(60 * random.paretovariate(1.3))
    return lognormal(random, 120, 0.6, 2_000), min(output, 4_000), 4_000


def retrieval(random: Random) -> tuple[int, int, int]:
    return lognormal(random, 700, 0.4, 4_000), lognormal(random, 40, 0.6, 200), 200


def story(random: Random) -> tuple[int, int, int]:
    return lognormal(random, 60, 0.5, 500), lognormal(random, 450, 0.5, 1_000), 1_000


def arrivals(random: Random, seconds: float, rate: Rate, peak: float) -> Iterator[float]:
    """A Poisson process whose rate changes, and never exceeds `peak`."""
    at = 0.0
    while (at := at + random.expovariate(peak)) < seconds:
        if random.random() * peak < rate(at):
            yield at


def call(at: float, lengths: tuple[int, int, int], shared: int = 0) -> Call:
    prompt, output, most = lengths
    return Call(at=at, prompt=prompt, shared=shared, output=output, max_tokens=most)


def steady(random: Random, seconds: float) -> Iterator[Call]:
    for at in arrivals(random, seconds, lambda _: 2.0, 2.0):
        yield call(at, chat(random))


def bursts(random: Random, seconds: float) -> Iterator[Call]:
    """Quiet, and every five minutes or so half a minute of four times as much."""
    spans: list[tuple[float, float]] = []
    at = 0.0
    while at < seconds:
        start = at + random.expovariate(1 / 270)
        at = start + random.uniform(15, 45)
        spans.append((start, at))
    coming = iter(spans)
    current = next(coming)

    def rate(at: float) -> float:
        nonlocal current
        while at >= current[1]:
            current = next(coming)
        return 5.6 if at >= current[0] else 1.4

    for at in arrivals(random, seconds, rate, 5.6):
        yield call(at, chat(random))


def wave(random: Random, seconds: float) -> Iterator[Call]:
    """A day in half an hour."""
    for at in arrivals(
        random, seconds, lambda at: 1.8 - 1.0 * math.cos(2 * math.pi * at / 1_800), 2.8
    ):
        yield call(at, chat(random))


def long_tail(random: Random, seconds: float) -> Iterator[Call]:
    for at in arrivals(random, seconds, lambda _: 1.6, 1.6):
        yield call(at, reasoning(random))


def regimes(random: Random, seconds: float) -> Iterator[Call]:
    """Every twenty minutes or so another kind of traffic, at another rate."""
    kinds: tuple[tuple[Lengths, float], ...] = ((chat, 1.9), (retrieval, 3.0), (story, 1.3))
    ends, kind = 0.0, 0
    lengths, speed = kinds[0]
    for at in arrivals(random, seconds, lambda _: 4.0, 4.0):
        if at >= ends:
            ends = at + random.uniform(600, 1_800)
            kind = (kind + random.choice((1, 2))) % len(kinds)
            lengths, speed = kinds[kind][0], kinds[kind][1] * random.uniform(0.7, 1.15)
        if random.random() * 4.0 < speed:
            yield call(at, lengths(random))


def crowds(random: Random, seconds: float) -> Iterator[Call]:
    """Requests that come together on a grid of three seconds, with a system prompt in common."""
    wandering = 0.0
    for tick in range(int(seconds / 3)):
        wandering = 0.97 * wandering + random.gauss(0, 0.07)
        rate = 1.35 * math.exp(wandering)
        for _ in arrivals(random, 3.0, lambda _, rate=rate: rate, 10.0):  # type: ignore[misc]
            lengths = lognormal(random, 450, 1.0, 6_000), *chat(random)[1:]
            yield call(3.0 * tick, lengths, shared=96)


def clients(random: Random, seconds: float) -> Clients:
    """Clients in a closed loop, with changing numbers; half the time a pause, some hang up."""
    sessions = []
    at = 0.0
    while at < seconds:
        ends = at + random.uniform(120, 1_200)
        sessions.append(
            Session(
                begins=at,
                ends=ends,
                clients=random.choice((4, 8, 12, 16, 24)),
                lengths=random.choice((chat, chat, retrieval, story)),
                hang_up=random.random() < 0.5,
            )
        )
        at = ends + (random.expovariate(1 / 240) if random.random() < 0.5 else 0.0)
    return Clients(random, sessions)


def users(random: Random, seconds: float) -> Clients:
    """People who read and think before they ask again: some always, others for a while."""
    sessions = [
        Session(begins=0.0, ends=seconds, clients=30, lengths=chat, think_seconds=30.0),
    ]
    at = 0.0
    while (at := at + random.expovariate(1 / 300)) < seconds:
        sessions.append(
            Session(
                begins=at,
                ends=at + random.uniform(200, 1_500),
                clients=random.randint(5, 40),
                lengths=chat,
                think_seconds=30.0,
            )
        )
    return Clients(random, sessions)


def stops(random: Random, seconds: float) -> Iterator[Call]:
    """A load that ends, begins again after a while or at once, and is different then."""
    at = 0.0
    while at < seconds:
        ends = at + random.uniform(30, 600)
        lengths = random.choice((chat, retrieval, story))
        rate = random.uniform(0.5, 3.0)
        for second in arrivals(random, ends - at, lambda _, rate=rate: rate, rate):  # type: ignore[misc]
            yield call(at + second, lengths(random))
        at = ends + (random.expovariate(1 / 200) if random.random() < 0.7 else 0.0)


def nights(random: Random, seconds: float) -> Iterator[Call]:
    """Half an hour of day, an hour of night: little but a batch now and then, all of it at once."""
    for begins in range(0, math.ceil(seconds), 5_400):
        rate = random.uniform(1.5, 2.1)
        for at in arrivals(random, 1_800, lambda _, rate=rate: rate, rate):  # type: ignore[misc]
            yield call(begins + at, chat(random))
        night = list(arrivals(random, 3_600, lambda _: 1 / 150, 1 / 150))
        for at in arrivals(random, 3_600, lambda _: 1 / 900, 1 / 900):
            night += [at] * random.randint(20, 120)
        for at in sorted(night):
            yield call(begins + 1_800 + at, chat(random))


def wandering(random: Random, seconds: float) -> Iterator[Call]:
    """A rate without any pattern (Ornstein and Uhlenbeck), and answers of which one in twelve is
    long: nothing announces the next exhaustion."""
    step, memory, level = 1.0, 120.0, 0.0
    keep = math.exp(-step / memory)
    spread = 0.35 * math.sqrt(1 - keep * keep)
    for second in range(int(seconds / step)):
        level = keep * level + random.gauss(0, spread)
        rate = 1.1 * math.exp(level)
        for at in arrivals(random, step, lambda _, rate=rate: rate, rate):  # type: ignore[misc]
            prompt, output, most = chat(random)
            if random.random() < 1 / 12:
                output = random.randint(800, 3_000)
            yield call(second * step + at, (prompt, output, max(most, 3_000)))


LOADS: tuple[Load, ...] = (
    Load(
        name="steady",
        what="2 requests a second",
        machine=Machine(num_blocks=1_400),
        calls=steady,
    ),
    Load(
        name="bursts",
        what="1.4 a second; half a minute of 5.6 every five minutes or so",
        machine=Machine(num_blocks=1_500),
        calls=bursts,
    ),
    Load(
        name="daily wave",
        what="from 0.8 to 2.8 a second and back in half an hour",
        machine=Machine(num_blocks=1_500),
        calls=wave,
    ),
    Load(
        name="long tail",
        what="1.6 a second, output lengths Pareto (1.3), up to 4,000 tokens",
        machine=Machine(num_blocks=1_500),
        calls=long_tail,
    ),
    Load(
        name="regime change",
        what="chat, retrieval or stories, a different one every ten to thirty minutes",
        machine=Machine(num_blocks=1_500),
        calls=regimes,
    ),
    Load(
        name="capped",
        what="2.2 a second, at most 44 sequences at once",
        machine=Machine(num_blocks=1_400, max_num_seqs=44),
        calls=lambda random, seconds: (
            call(at, chat(random)) for at in arrivals(random, seconds, lambda _: 2.2, 2.2)
        ),
    ),
    Load(
        name="crowds",
        what="in groups every three seconds, at a rate that wanders; prefixes in common",
        machine=Machine(num_blocks=2_300, enable_prefix_caching=True),
        calls=crowds,
    ),
    Load(
        name="clients",
        what="4 to 24 clients that each wait for their answer; they stop, hang up, come back",
        machine=Machine(num_blocks=400, step_seconds=0.02, sequence_seconds=0.0001),
        calls=clients,
    ),
    Load(
        name="users",
        what="30 users who think for half a minute, and 5 to 40 more for a while",
        machine=Machine(num_blocks=1_100),
        calls=users,
    ),
    Load(
        name="stops",
        what="half to 3 a second for up to ten minutes; a pause, or none; then another load",
        machine=Machine(num_blocks=1_400),
        calls=stops,
    ),
    Load(
        name="nights",
        what="half an hour of 1.5 to 2.1 a second; an hour with a batch of 20 to 120 now and then",
        machine=Machine(num_blocks=1_400),
        calls=nights,
    ),
)
FURTHER: tuple[Load, ...] = (
    Load(
        name="wandering",
        what="a rate that wanders about 1.1 a second; one answer in twelve is long",
        machine=Machine(num_blocks=3_000),
        calls=wandering,
    ),
)
"""Played only by name."""
