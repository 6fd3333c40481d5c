"""First objectives of the models of a Prometheus, each with the figure that it comes from."""

import json
from collections.abc import Callable, Mapping

from kvscope_monitoring import formulas
from kvscope_monitoring.bounds import BOUNDS, FIRST_TOKEN, TOKEN_GAP, judged_at, limits
from kvscope_monitoring.objectives import ERROR_OBJECTIVE, ITL_OBJECTIVE, TTFT_OBJECTIVE

LEAST = 1000
"""Requests, or tokens: fewer say little about one in two hundred."""
_SHARES = (ERROR_OBJECTIVE, 0.995, 0.99, 0.95, 0.9)
_BY = "by (model_name)"
_TIMED = (
    ("ttft", FIRST_TOKEN, TTFT_OBJECTIVE, "first tokens"),
    ("itl", TOKEN_GAP, ITL_OBJECTIVE, "tokens"),
)


def suggestion(now: Callable[[str], Mapping[str, float]], hours: int) -> list[str]:
    """Lines of an objectives file; empty without requests. now: a query's value for each model."""
    window = f"{hours}h"
    found: dict[str, list[str]] = {}
    for key, family, share, what in _TIMED:
        counts = now(f"sum {_BY} (increase({family}_count[{window}]))")
        enough = (1 + share) / 2
        buckets = f"sum by (model_name, le) (increase({family}_bucket[{window}]))"
        for model, seconds in now(f"histogram_quantile({enough:g}, {buckets})").items():
            count = counts.get(model, 0.0)
            known = [each for each in limits(family) if _least(family, each) > seconds]
            why = f"{enough:.1%} of {count:,.0f} {what} came within {seconds:.3g} s"
            line = f"{key}: {known[0]:g}  # {why}" if known else f"{key}: none  # {why}"
            found.setdefault(model, []).append(line if count >= LEAST else f"# {line}: too few")
    judged = now(formulas.judged_requests(window, _BY))
    failed = now(formulas.failed_requests(window, _BY))
    for model, rate in judged.items():
        bad, count = failed.get(model, 0.0) / rate if rate else 0.0, rate * hours * 3600
        share = next((each for each in _SHARES if 1 - each >= 2 * bad), 0.0)
        why = f"{bad:.3%} of {count:,.0f} requests failed"
        line = f"errors: {share:g}  # {why}" if share else f"# errors: {why}: mend that first"
        found.setdefault(model, []).append(line if count >= LEAST else f"# {line}: too few")
    return [
        line
        for model, lines in sorted(found.items())
        for line in (f"{json.dumps(model)}:", *(f"  {each}" for each in lines))
    ]


def _least(family: str, limit: float) -> float:
    """The limit, or a smaller bound by which a kind of server judges it. Late ones behind the last
    bound of a histogram look as if they came at that bound."""
    return min(limit, *(judged_at(limit, bounds) or 0.0 for bounds in BOUNDS[family].values()))
