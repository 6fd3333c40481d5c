"""Every figure that boards, recording rules and alerts share, written once as PromQL.

The arguments of a formula are what differs between these: `window`, the range of rates; `grouping`,
an aggregation clause such as `by (model_name)` or `without (phase)`, empty for a single figure;
`selector`, matchers that go into every selector. Ratios without a denominator are absent, not NaN.
"""

from collections.abc import Callable

from kvscope_exporter.catalogue import metric
from kvscope_monitoring import bounds, identity
from kvscope_monitoring.selectors import bucket, rate, series

PER_ENGINE = identity.clause(*identity.ENGINE)

HIT_TOKENS = "kvscope_prefix_cache_hit_tokens_total"
QUERIED_TOKENS = "kvscope_prefix_cache_queried_tokens_total"

_REFUSED_BY_US = ("queue_full", "engine_dead")
_ENDED = ("stop", "length", "error", "stop_string_or_abort")
"""Not abort, which says nothing about the server. In a vLLM that is observed without its own page
some of the last kind are aborts: leaving out all of them would make it look unused."""


def share(part: str, whole: str) -> str:
    """A part divided by the whole; absent while the whole is 0."""
    return f"{part}\n/ ({whole} > 0)"


def _sum(expr: str, grouping: str) -> str:
    return f"sum {grouping} ({expr})" if grouping else f"sum({expr})"


# Prefix cache


def hit_ratio(window: str, grouping: str = "", selector: str = "", phase: str = "first") -> str:
    """Tokens found divided by tokens queried.

    By default at first admissions only: a preempted request that finds its own blocks would make
    the cache look better than it is.
    """
    return share(
        _sum(rate(HIT_TOKENS, window, selector, phase=phase), grouping),
        _sum(rate(QUERIED_TOKENS, window, selector, phase=phase), grouping),
    )


def whatif_error(window: str, grouping: str = "", selector: str = "") -> str:
    """Blocks by which predictions for the present size missed the engine's hits, over queried ones.

    At each lookup, so that too many and too few do not cancel out.
    """
    missed = rate("kvscope_prefix_cache_whatif_error_blocks_total", window, selector)
    queried = rate("kvscope_prefix_cache_whatif_queried_blocks_total", window, selector)
    return share(_sum(missed, grouping), _sum(queried, grouping))


def regretted_share(window: str, grouping: str = "", selector: str = "") -> str:
    """Prompt tokens computed again because their blocks had been evicted, over those queried."""
    regretted = rate("kvscope_prefix_cache_regret_tokens_total", window, selector)
    queried = rate(QUERIED_TOKENS, window, selector, phase="first")
    return share(_sum(regretted, grouping), _sum(queried, grouping))


# Preemption


def recomputed_share(
    window: str, grouping: str = "without (mode, cause, phase)", selector: str = ""
) -> str:
    """Tokens computed again after a preemption, over all tokens that steps computed."""
    recomputed = rate("kvscope_preemption_recomputed_tokens_total", window, selector)
    computed = rate("kvscope_step_tokens_total", window, selector)
    return share(_sum(recomputed, grouping), _sum(computed, grouping))


# Pool


def pool_usage(grouping: str = "", selector: str = "") -> str:
    """Blocks that sequences reference over the blocks that can be handed out, for several pools."""
    active = series("kvscope_kv_blocks", selector, state="active")
    usable = series("kvscope_kv_usable_blocks", selector)
    return share(_sum(active, grouping), _sum(usable, grouping))


def committed_share(grouping: str = "", selector: str = "") -> str:
    """Blocks that running requests need up to their max_tokens, over the usable ones; the worst."""
    committed = series("kvscope_kv_committed_blocks", selector)
    usable = series("kvscope_kv_usable_blocks", selector)
    each = f"{committed} / ({usable} > 0)"
    return f"max {grouping} ({each})" if grouping else f"max({each})"


# Service levels


def failed_requests(window: str, grouping: str, selector: str = "") -> str:
    """Requests per second that the server failed, or refused for lack of room or of an engine;
    also those that its API answered with 5xx before they reached an engine.

    Client errors (an abort, a prompt that is too long) do not count as failures.
    """
    failed = f"{_failed_by_engine(window, selector)} or {_failed_by_api(window, selector)}"
    return _sum(failed, grouping)


def judged_requests(window: str, grouping: str, selector: str = "") -> str:
    """Requests per second that count for the objective, failed or not.

    Responses of the API stand for those of a server that does not say how requests ended.
    """
    ended = _ended(window, selector)
    answered = rate("kvscope_api_responses_total", window, selector, status=("2xx", "5xx"))
    by_api = (
        f"sum without (engine, status) ({answered}) unless sum without (engine, reason) ({ended})"
        f" or {_failed_by_api(window, selector)}"
    )
    return _sum(f"{ended} or {by_api}", grouping)


def error_share(window: str, grouping: str, selector: str = "") -> str:
    """Failed requests over judged ones."""
    return share(
        failed_requests(window, grouping, selector),
        judged_requests(window, grouping, selector),
    )


def failed_by_engine(window: str, grouping: str, selector: str = "") -> str:
    """Failed requests of which the engine is known, to compare engines."""
    return _sum(_failed_by_engine(window, _of_one_engine(selector)), grouping)


def engine_error_share(window: str, grouping: str, selector: str = "") -> str:
    """Those over all that ended in the engine."""
    ended = _sum(_ended(window, _of_one_engine(selector)), grouping)
    return share(failed_by_engine(window, grouping, selector), ended)


def api_responses(window: str, grouping: str, selector: str = "") -> str:
    """Responses of the API per second, whatever their status."""
    return _sum(rate("kvscope_api_responses_total", window, selector), grouping)


def api_failures(window: str, grouping: str, selector: str = "") -> str:
    """Responses with 5xx per second beyond those of requests that an engine failed or that were
    refused."""
    return _sum(_failed_by_api(window, selector), grouping)


def first_tokens(window: str, grouping: str, selector: str = "") -> str:
    """First tokens per second."""
    counted = rate("kvscope_time_to_first_token_seconds_count", window, selector)
    return _sum(counted, grouping)


def timely_first_tokens(window: str, grouping: str, seconds: float, selector: str = "") -> str:
    """First tokens per second that came within the given seconds, by the bound nearest to them."""
    return _sum(_timely(bounds.FIRST_TOKEN, seconds, window, selector), grouping)


def abandoned_late(window: str, grouping: str, seconds: float, selector: str = "") -> str:
    """Requests per second that were aborted before their first token, after at least the given
    seconds, or the next bound of the histogram above them.

    Earlier aborts say nothing: the next keystroke makes a completion useless.
    """
    family = "kvscope_request_abandoned_seconds"
    bounds = [bound for bound in metric(family).lean_buckets or () if bound >= seconds]
    all_of_them = _sum(rate(f"{family}_count", window, selector), grouping)
    sooner = _sum(f"rate({bucket(family, bounds[0], selector)}[{window}])", grouping)
    return f"({all_of_them} - {sooner})"


def token_gaps(window: str, grouping: str, selector: str = "") -> str:
    """Tokens per second, without each request's first."""
    return _sum(rate("kvscope_inter_token_latency_seconds_count", window, selector), grouping)


def timely_token_gaps(window: str, grouping: str, seconds: float, selector: str = "") -> str:
    """Tokens per second that followed within the given seconds, by the bound nearest to them."""
    return _sum(_timely(bounds.TOKEN_GAP, seconds, window, selector), grouping)


def _timely(family: str, seconds: float, window: str, selector: str) -> str:
    """A histogram's observations up to the bound that it has nearest to a limit: buckets are
    cumulative, so that of the largest bound below has most, that of the smallest above least."""

    def buckets(bound: str) -> str:
        matchers = ",".join(filter(None, (f'le=~"{bound}"', selector)))
        return rate(f"{family}_bucket", window, matchers)

    below, above = buckets(bounds.at_or_below(seconds)), buckets(bounds.above(seconds))
    return f"max without (le) ({below}) or min without (le) ({above})"


def mean(family: str, window: str, grouping: str, selector: str = "") -> str:
    """Mean of a histogram's observations."""
    return share(
        _sum(rate(f"{family}_sum", window, selector), grouping),
        _sum(rate(f"{family}_count", window, selector), grouping),
    )


def _failed_by_engine(window: str, selector: str) -> str:
    failed = rate("kvscope_requests_finished_total", window, selector, reason="error")
    return f"{failed} or {_refused(window, selector)}"


def _ended(window: str, selector: str) -> str:
    ended = rate("kvscope_requests_finished_total", window, selector, reason=_ENDED)
    return f"{ended} or {_refused(window, selector)}"


def _refused(window: str, selector: str) -> str:
    """Requests refused, where the server reports them."""
    return rate("kvscope_requests_rejected_total", window, selector, reason=_REFUSED_BY_US)


def _failed_by_api(window: str, selector: str) -> str:
    """A server's own; one API serves all of its engines."""
    answered = rate("kvscope_api_responses_total", window, selector, status="5xx")
    failures = f"sum without (engine, status) ({answered})"
    known = f"sum without (engine, reason) ({_failed_by_engine(window, selector)})"
    return f"clamp_min({failures} - {known} or {failures}, 0)"


def _of_one_engine(selector: str) -> str:
    """Refusals of a server with several engines happen before one is chosen."""
    return ",".join(part for part in (selector, 'engine!=""') if part)


# Engine


def engines_heard(grouping: str = "", selector: str = "", same: str = PER_ENGINE) -> str:
    """Engines that an exporter hears from. An engine may have several streams: one for each
    worker."""
    engines = f"count by ({same}) ({engine_signs(selector)})"
    return f"count {grouping} ({engines})" if grouping else f"count({engines})"


def engine_signs(selector: str = "") -> str:
    """One or more series for each engine that an exporter hears from: streams of its events that
    are up, or its requests, which its server's own page has as well."""
    matchers = ",".join(filter(None, (identity.HAS_ENGINE, selector)))
    streams = f"{series('kvscope_source_up', matchers)} == 1"
    return f"{streams} or {series('kvscope_requests', selector)}"


def in_engine(selector: str = "") -> str:
    """Requests in an engine, whatever their state."""
    return f"sum without (state) ({series('kvscope_requests', selector)})"


def stalled(
    window: str = "1m",
    resolution: str = "5s",
    selector: str = "",
    same: str = PER_ENGINE,
    last: Callable[[str], str] = str,
) -> str:
    """Seconds since the last step, of engines that have had requests for the whole window.

    Idle engines make no steps, and the first step after an idle hour must not count as an hour.
    last: makes of a selector that a lost scrape leaves empty an expression that it does not.
    """
    last_step = last(series("kvscope_last_step_age_seconds", selector))
    work = f"min_over_time(({in_engine(selector)})[{window}:{resolution}])"
    return f"{last_step}\nand on ({same}) ({work} > 0)"


# Host


def host_used_share(selector: str = "", last: Callable[[str], str] = str) -> str:
    """Memory of a server's control group divided by its limit.

    File cache is not counted, since the kernel drops it before it kills a process. last: as above.
    """
    used = series("kvscope_host_memory_unreclaimable_bytes", selector)
    limit = series("kvscope_host_memory_limit_bytes", selector)
    return f"{last(used)}\n/ {last(limit)}"
