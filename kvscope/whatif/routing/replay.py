"""Replays requests under one policy, and counts what a fleet's waterfall counts live."""

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean

from kvscope.options.routing import Policy
from kvscope.whatif.routing.policies import Place
from kvscope.whatif.routing.replica import Pace, Replica, advance_all
from kvscope.whatif.routing.workload import Workload
from kvscope_exporter.state.fleet import Steps, Waterfall

TELL_EVERY = 1024
"""Requests between two calls of `on_progress`."""
SAMPLE_EVERY = 500
"""Requests between two looks at what several pools hold; fewer requests have one, at their end."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one policy."""

    policy: Policy
    steps: Steps
    tiers: Sequence[tuple[int, int]]
    """Blocks of a shared tier, and the hits of the pools and such a tier behind them."""
    saved_tokens: int
    """Prompt tokens found by the replica that got the request."""
    work: Sequence[int]
    """Blocks that each replica had to compute."""
    queue_seconds_p50: float
    """Until a request's prompt is begun."""
    queue_seconds_p99: float
    duplicates: float | None
    """Share of the resident blocks that are surplus copies, on average over looks at the pools: of
    content that k pools hold, k - 1 blocks are. None: there were no blocks."""

    @property
    def imbalance(self) -> float | None:
        """Work of the busiest replica over the mean; None: there was no work."""
        total = sum(self.work)
        return max(self.work) * len(self.work) / total if total else None


def replay(
    workload: Workload,
    policy: Policy,
    place: Place,
    *,
    replicas: int,
    capacity: int,
    pace: Pace,
    tiers: Sequence[int],
    on_progress: Callable[[int], None] = lambda requests: None,
) -> Outcome:
    """capacity: blocks of each pool. tiers: sizes in blocks, ascending. The pools begin empty."""
    waterfall = Waterfall(sys.maxsize, tiers)
    holders = waterfall.holders
    fleet = [Replica(capacity, pace) for _ in range(replicas)]
    slots = [holders.join() for _ in fleet]
    work = [0] * replicas
    placed: dict[Hashable, int] = {}
    waits: list[float] = []
    duplicates: list[float] = []
    saved = 0

    def sample() -> None:
        if holders.resident_blocks:
            duplicates.append(1 - holders.distinct_names / holders.resident_blocks)

    for number, request in enumerate(workload.requests, start=1):
        advance_all(fleet, request.at)
        chosen = None if request.call is None else placed.get(request.call)
        if chosen is None:
            chosen = place(request, fleet)
            if request.call is not None:
                placed[request.call] = chosen
        replica, names = fleet[chosen], request.names
        own = replica.prefix(names)
        waterfall.look_up(names, own)
        came, gone = replica.touch([*names, *request.further] if request.further else names)
        holders.store(slots[chosen], came)
        holders.remove(slots[chosen], gone)
        found_tokens = min(own * workload.block_tokens, request.prompt_tokens)
        saved += found_tokens
        work[chosen] += len(names) - own
        computed_tokens = request.prompt_tokens - found_tokens
        waits.append(replica.serve(request.at, len(names), computed_tokens, request.output_tokens))
        if number % SAMPLE_EVERY == 0:
            sample()
        if number % TELL_EVERY == 0:
            on_progress(number)
    if not duplicates:
        sample()
    waits.sort()
    return Outcome(
        policy=policy,
        steps=waterfall.totals,
        tiers=waterfall.asked.hits_by_size(),
        saved_tokens=saved,
        work=work,
        queue_seconds_p50=_quantile(waits, 50),
        queue_seconds_p99=_quantile(waits, 99),
        duplicates=fmean(duplicates) if duplicates else None,
    )


def _quantile(ascending: Sequence[float], percent: int) -> float:
    """The smallest value that at least this share of them does not exceed."""
    return ascending[-(-len(ascending) * percent // 100) - 1]
