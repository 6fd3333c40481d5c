"""Overview, second half: the curves that say since when and why, and whether to believe them."""

from dashboards import thresholds as limits
from dashboards.frame import Row
from dashboards.links import KV_POOL, MEMORY, PREFIX_CACHE, to_dashboard
from dashboards.panels import (
    BYTES,
    COUNT,
    PER_SECOND,
    RATIO,
    REQUESTS_PER_SECOND,
    SECONDS,
    TOKENS_PER_SECOND,
    Q,
    graph,
    numbers,
    quantiles,
    timeline,
)
from dashboards.queries import (
    BY_ENGINE,
    ENGINE_LEGEND,
    GPU_LEGEND,
    SERVER,
    firing_by_rank,
    gpu_room,
    quantile,
    rate,
    series,
    share,
    total,
    worst,
)

_FIRST_TOKEN = "kvscope_time_to_first_token_seconds"
_HIT = "kvscope_prefix_cache_hit_tokens_total"
_QUERIED = "kvscope_prefix_cache_queried_tokens_total"


def since_when() -> Row:
    return Row(
        300,
        "Since when?",
        [
            timeline(
                301,
                "Alerts over time",
                "When which alert fired. What began first is closest to the cause; compare with "
                "the curves at the same moment.",
                Q(
                    firing_by_rank("max by (alertname, instance)"),
                    "{{alertname}} {{instance}}",
                ),
                meanings=limits.SEVERITIES,
                when_absent="No alert fired in this time range.",
            ),
            graph(
                302,
                "KV pool in use",
                "Share of the blocks that requests reference. Long at the top: add replicas, give "
                "the pool more memory, or lower --max-num-seqs. Short peaks are healthy.",
                RATIO,
                Q(
                    worst(series("kvscope_kv_usage_ratio", basis="active"), BY_ENGINE),
                    ENGINE_LEGEND,
                ),
                high=1,
                steps=limits.POOL_USAGE,
                link=to_dashboard("KV pool", KV_POOL),
            ),
            quantiles(
                303,
                "Time to first token",
                "What users wait before they see anything. A p99 far from the p50: a few requests "
                "pay for the others; look at waiting requests and preemptions at that moment. A "
                "worst engine far from all: it alone is sick; sort the engines by it.",
                *(Q(quantile(q, _FIRST_TOKEN), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
                Q(worst(quantile(0.95, _FIRST_TOKEN, BY_ENGINE)), "p95, worst engine"),
                steps=limits.FIRST_TOKEN_SECONDS,
                right=True,
            ),
            graph(
                304,
                "Requests",
                "Running and waiting now. Waiting that does not go down: arrivals exceed what the "
                "engines can serve; add replicas or refuse earlier.",
                COUNT,
                Q(total(series("kvscope_requests", state="running")), "running"),
                Q(total(series("kvscope_requests", state="waiting")), "waiting"),
                colours={"running": "blue", "waiting": "orange"},
                axis="requests",
            ),
        ],
    )


def why() -> Row:
    recomputed = total(rate("kvscope_preemption_recomputed_tokens_total"))
    return Row(
        400,
        "Why?",
        [
            graph(
                401,
                "What did pressure cost?  Tokens",
                "Tokens computed a second time after a preemption, beside what was useful. Orange "
                "is work that more KV memory, or fewer sequences at once, would save.",
                TOKENS_PER_SECOND,
                Q(f"{total(rate('kvscope_step_tokens_total'))} - {recomputed}", "useful"),
                Q(recomputed, "computed twice"),
                stacked=True,
                colours={"useful": "blue", "computed twice": "orange"},
                span=8,
                calcs=("lastNotNull", "mean"),
                link=to_dashboard("KV pool", KV_POOL),
            ),
            graph(
                402,
                "What did pressure cost?  Seconds",
                "Requests that stand still on average: after a preemption (seconds stalled per "
                "second, added when they resume), and in the queue before their first step.",
                COUNT,
                Q(total(rate("kvscope_preemption_stalled_seconds_total")), "preempted"),
                Q(total(rate("kvscope_request_queue_seconds_sum")), "queued"),
                colours={"preempted": "orange", "queued": "light-blue"},
                axis="requests standing still",
                span=8,
                calcs=("lastNotNull", "mean"),
                link=to_dashboard("KV pool", KV_POOL),
            ),
            graph(
                403,
                "Prefix hits",
                "Share of the prompt tokens that were in the cache. A fall at the moment when "
                "first tokens became slow: open the prefix cache for the cause of the misses.",
                RATIO,
                Q(
                    share(
                        total(rate(_HIT, phase="first"), BY_ENGINE),
                        total(rate(_QUERIED, phase="first"), BY_ENGINE),
                    ),
                    ENGINE_LEGEND,
                ),
                high=1,
                span=8,
                calcs=("lastNotNull", "mean"),
                link=to_dashboard("Prefix cache", PREFIX_CACHE),
            ),
            graph(
                404,
                "Ends and refusals",
                "Requests by how they ended. error: see the log. refused: at the door, whatever "
                "the reason; the KV pool dashboard tells them apart. abort: clients gave up, often "
                "because of waiting.",
                REQUESTS_PER_SECOND,
                Q(total(rate("kvscope_requests_finished_total"), "reason"), "{{reason}}"),
                Q(total(rate("kvscope_requests_rejected_total")), "refused"),
                stacked=True,
                colours=limits.END_COLOURS,
                span=8,
                listed=True,
            ),
            graph(
                405,
                "Tokens computed",
                "What all engines do together. Prefill that crowds out decode makes tokens come "
                "slowly; lower --max-num-batched-tokens.",
                TOKENS_PER_SECOND,
                Q(total(rate("kvscope_step_tokens_total"), "phase"), "{{phase}}"),
                stacked=True,
                colours={"prefill": "light-blue", "decode": "blue"},
                span=8,
                calcs=("lastNotNull", "mean"),
            ),
            graph(
                406,
                "GPU room after the largest step",
                "Headroom less the largest step so far, by GPU. Towards 0: another process grew, "
                "or torch's cache is fragmented; open Memory.",
                BYTES,
                Q(f"min by (instance, gpu, uuid) ({gpu_room()})", GPU_LEGEND),
                steps=limits.ROOM_AFTER_PEAK_BYTES,
                low=None,
                span=8,
                calcs=("lastNotNull", "min"),
                when_absent="No GPU is read, or its server tells nothing of its allocator.",
                link=to_dashboard("Memory", MEMORY),
            ),
        ],
    )


def _dearest(counter: str) -> str:
    """The rates of the server where their sum is highest."""
    each = rate(counter, SERVER)
    return f"{each} and on (job, instance) topk(1, {total(each, 'job, instance')})"


def trust() -> Row:
    return Row(
        600,
        "Can these numbers be trusted?",
        [
            numbers(
                601,
                "Is anything missing or wrong?  All must be 0",
                "Out of balance: blocks by which the replayed events differ from the engine's own "
                "counts; a bug, keep the log and report it. Sources down: not read, so numbers "
                "are old. State unknown: batches were lost; what depends on them is absent until "
                "the next snapshot. If one stays, restart the server.",
                COUNT,
                Q(
                    worst(f"abs({series('kvscope_kv_ledger_imbalance_blocks')})"),
                    "out of balance",
                ),
                Q(f"sum(1 - {series('kvscope_source_up', SERVER)})", "sources down"),
                Q(f"sum(1 - {series('kvscope_source_state_known', SERVER)})", "state unknown"),
                steps=limits.NONE_IS_GOOD,
                span=6,
                height=7,
            ),
            graph(
                604,
                "Events lost",
                "Batches dropped because the exporter was too slow, gaps that it saw, and folds "
                "that failed. Anything but 0: give the process more CPU, or report the error.",
                PER_SECOND,
                Q(total(rate("kvscope_event_batches_dropped_total", SERVER)), "batches dropped"),
                Q(total(rate("kvscope_event_gaps_total", SERVER)), "gaps"),
                Q(total(rate("kvscope_fold_errors_total", SERVER)), "failed folds"),
                span=6,
                height=7,
                listed=True,
            ),
            graph(
                605,
                "How far behind is the exporter?",
                "Age of the oldest queued event when a page was asked for, time to render the "
                "page, age of the last message. Lag of seconds: batches will be dropped next.",
                SECONDS,
                Q(worst(series("kvscope_fold_lag_seconds", SERVER)), "lag"),
                Q(worst(series("kvscope_scrape_duration_seconds", SERVER)), "page"),
                Q(
                    "max(timestamp({0}) - {0})".format(
                        series("kvscope_source_last_message_timestamp_seconds", SERVER)
                    ),
                    "last message",
                ),
                span=6,
                height=7,
                steps=limits.LAG_SECONDS,
                listed=True,
            ),
            graph(
                606,
                "What the exporter costs",
                "CPU spent on events, by fold, as a share of one core, in the server where that is "
                "most at the moment. Above a tenth it competes with its engine: report it.",
                RATIO,
                Q(total(_dearest("kvscope_fold_seconds_total"), "fold"), "{{fold}}"),
                stacked=True,
                span=6,
                height=7,
                listed=True,
            ),
        ],
    )
