"""Requests over HTTP that share prefixes; some clients leave before they have their answer."""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.sglang.server import SglangServer

AT_ONCE = 10


class Job(NamedTuple):
    prompt: list[int]
    max_tokens: int
    streams: bool
    leaves_after: int | None
    """Pieces of its stream; None: it stays."""


def jobs(count: int, seed: int, *, leaving: float = 0.0) -> list[Job]:
    """The same for a seed. leaving: the share of clients that leave."""
    rng = random.Random(seed)

    def tokens(fewest: int, most: int) -> list[int]:
        return [rng.randint(3, 250) for _ in range(rng.randint(fewest, most))]

    systems = [tokens(40, 150) for _ in range(4)]
    made: list[Job] = []
    for _ in range(count):
        kind = rng.random()
        if made and kind < 0.15:
            prompt = rng.choice(made).prompt
        elif kind < 0.75:
            prompt = rng.choice(systems) + tokens(5, 80)
        else:
            prompt = tokens(20, 250)
        leaves_after = rng.choice((0, 1, 4, 12)) if rng.random() < leaving else None
        made.append(Job(prompt, rng.choice((8, 32, 64, 150)), rng.random() < 0.3, leaves_after))
    return made


def ask(server: SglangServer, asked: Sequence[Job], at_once: int = AT_ONCE) -> list[list[int]]:
    """The greedy tokens of each job, in order; of clients that left those that they got."""

    def one(job: Job) -> list[int]:
        if not job.streams and job.leaves_after is None:
            return server.generate(job.prompt, job.max_tokens)
        return server.stream(job.prompt, job.max_tokens, job.leaves_after)

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, asked))
