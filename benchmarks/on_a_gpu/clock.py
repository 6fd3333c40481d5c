"""Device time of repeated calls."""

from collections.abc import Callable
from statistics import median

import torch

ROUNDS = 5


def device_seconds(call: Callable[[], object], calls: int = 20) -> float:
    """Seconds of one call: the median of rounds of back-to-back calls, after one round to warm
    up."""
    rounds = []
    for _ in range(ROUNDS + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        rounds.append(begin.elapsed_time(end) / 1e3 / calls)
    return float(median(rounds[1:]))
