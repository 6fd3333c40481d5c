"""First objectives of the models of a Prometheus, each with the figure that it comes from."""

import json
import math
import time
from collections.abc import Iterator, Mapping

import httpx

from kvscope.answer_document import Connection
from kvscope.backtest import BacktestError
from kvscope.backtest.queried import ask
from kvscope_exporter.scrape import Tls
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


def suggestion(
    url: str, hours: int, headers: Mapping[str, str], connection: Connection
) -> Iterator[str]:
    """Lines of an objectives file. Raises BacktestError."""
    window = f"{hours}h"
    ca = None if connection.ca is None else str(connection.ca)
    try:
        client = Tls(ca=ca).client(url, connection.seconds)
    except (OSError, ValueError, httpx.InvalidURL) as error:
        raise BacktestError(f"{url}: {error}; expected http://HOST:PORT") from None

    def now(query: str) -> dict[str, float]:
        """The value of each model at present."""
        at = int(time.time())
        asked: dict[str, str | int] = {"query": query, "start": at, "end": at, "step": 60}
        answer = ask(client, url, asked, headers, connection.seconds)
        found = [(s.metric.get("model_name"), float(s.values[-1][1])) for s in answer.data.result]
        return {model: value for model, value in found if model and not math.isnan(value)}

    found: dict[str, list[str]] = {}
    with client:
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
    if not found:
        raise BacktestError(f"{url}: no requests of kvscope's servers in the last {window}")
    yield f"# From the last {window} of {url}, which used at most half of each budget."
    for model, lines in sorted(found.items()):
        yield f"{json.dumps(model)}:"
        yield from (f"  {line}" for line in lines)


def _least(family: str, limit: float) -> float:
    """The limit, or a smaller bound by which a kind of server judges it. Late ones behind the last
    bound of a histogram look as if they came at that bound."""
    return min(limit, *(judged_at(limit, bounds) or 0.0 for bounds in BOUNDS[family].values()))
