"""Start times of requests: as others end, at random at a rate, or as recorded in a trace."""

import asyncio
import math
import random
from collections.abc import Callable, Iterable
from itertools import repeat

from kvscope.load.lane import Lane
from kvscope.load.report import Tally
from kvscope.load.scenarios import COMPLETIONS, Job, JobSource
from kvscope.load.spec import LoadSpec, Scenario

QUIET_LEVEL = 0.1
"""Load between bursts, as a share of the full load."""
_BURST_SHARE = 0.4
"""Share of a period that is quiet; it comes first, so that the burst stands out."""

Level = Callable[[float], float]
"""Share of the full load, 0 to 1, at this many seconds from the start."""


def level_of(spec: LoadSpec) -> Level:
    """`bursts` is a square wave, `mix` a smooth one, all others are steady."""

    def square(seconds: float) -> float:
        return QUIET_LEVEL if seconds / period % 1 < 1 - _BURST_SHARE else 1.0

    def wave(seconds: float) -> float:
        rise = (1 - math.cos(2 * math.pi * seconds / period)) / 2
        return QUIET_LEVEL + (1 - QUIET_LEVEL) * rise

    period = spec.period_seconds
    match spec.scenario:
        case Scenario.BURSTS:
            return square
        case Scenario.MIX:
            return wave
        case _:
            return lambda seconds: 1.0


async def closed_loop(spec: LoadSpec, lane: Lane, source: JobSource) -> None:
    """Keeps as many requests in flight as the level allows, at least one."""
    level = level_of(spec)
    for _ in _counted(spec.num_requests):
        await lane.below(lambda: max(1, round(spec.max_in_flight * level(lane.elapsed_seconds))))
        lane.launch(source.next_job())


async def open_loop(spec: LoadSpec, lane: Lane, source: JobSource, tally: Tally) -> None:
    """Poisson arrivals at `rate` times the level; one that finds the lane full is shed.

    Drawn at the full rate and thinned to the level: exact for a rate that changes.
    """
    assert spec.rate is not None
    rng = random.Random(f"{spec.seed}/arrivals")
    level = level_of(spec)
    due = 0.0
    for _ in _counted(spec.num_requests):
        due += rng.expovariate(spec.rate)
        while rng.random() >= level(due):
            due += rng.expovariate(spec.rate)
        # Sleeps even if late, or a rate beyond what this process can send would block the loop.
        await asyncio.sleep(max(0.0, due - lane.elapsed_seconds))
        if lane.in_flight < spec.max_in_flight:
            lane.launch(source.next_job())
        else:
            tally.shed += 1


async def replay(spec: LoadSpec, lane: Lane, tally: Tally, context: int | None) -> None:
    """The trace's requests in order, none before its time; late rather than dropped."""
    trace = spec.trace()
    blocks = spec.tokens_of(trace)
    first_ms: float | None = None
    for request in trace:
        if first_ms is None:
            first_ms = request.timestamp_ms
        due = (request.timestamp_ms - first_ms) / 1000 / spec.time_scale
        await asyncio.sleep(max(0.0, due - lane.elapsed_seconds))
        await lane.below(lambda: spec.max_in_flight)
        tally.was_late(max(0.0, lane.elapsed_seconds - due))
        prompt = blocks.prompt(request)
        max_tokens = min(blocks.scaled(request.output_length), spec.max_tokens or math.inf)
        if context is not None and len(prompt) + max_tokens > context:
            room = int(context - max_tokens)
            if not spec.truncate or room < 1:
                tally.skipped += 1
                continue
            tally.truncated += 1
            del prompt[room:]
        body: dict[str, object] = {
            "prompt": prompt,
            "max_tokens": int(max_tokens),
            "user": "trace",
        }
        lane.launch(Job(path=COMPLETIONS, body=body))


def _counted(number: int | None) -> Iterable[None]:
    return repeat(None) if number is None else repeat(None, number)
