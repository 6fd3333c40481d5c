"""Overview: the usual causes side by side."""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.links import FLEET_CACHE, KV_POOL, MEMORY, PREFIX_CACHE, to_dashboard
from dashboards.kit.panels import (
    BYTES,
    COUNT,
    RATIO,
    REQUESTS_PER_SECOND,
    TOKENS_PER_SECOND,
    Q,
    graph,
)
from dashboards.kit.queries import (
    BY_GPU,
    EACH_ENGINE,
    ENGINE,
    GPU_LEGEND,
    RATE_WINDOW,
    every_engine,
    gpu_room,
    hundredths,
    or_zero,
    rate,
    total,
)
from kvscope_monitoring import fleet, formulas

_OF_THE_MODEL = 'cluster=~"$cluster",model_name=~"$model"'
"""The process that follows the fleet is at another place than its servers."""


def row() -> Row:
    recomputed = total(rate("kvscope_preemption_recomputed_tokens_total"))
    regretted = or_zero(total(rate("kvscope_prefix_cache_regret_tokens_total")), every_engine())
    other_failures = formulas.api_failures(RATE_WINDOW, "", ENGINE)
    return Row(
        400,
        "Why?",
        [
            graph(
                401,
                "What did pressure cost?  Tokens",
                "Tokens computed a second time, beside the useful ones. recomputed: after a "
                "preemption. regretted: in prompts whose blocks had been evicted. More KV memory, "
                "or fewer sequences at once, would save both.",
                TOKENS_PER_SECOND,
                Q(
                    f"{total(rate('kvscope_step_tokens_total'))} - {recomputed} - ({regretted})",
                    "useful",
                ),
                Q(hundredths(recomputed), "recomputed"),
                Q(hundredths(regretted), "regretted"),
                stacked=True,
                colours={"useful": "blue", "recomputed": "orange", "regretted": "yellow"},
                span=6,
                calcs=("lastNotNull", "mean"),
                link=to_dashboard("KV pool", KV_POOL),
            ),
            graph(
                402,
                "What did pressure cost?  Seconds",
                "How many requests are stalled on average: after a preemption (seconds stalled "
                "per second, added when they resume or end), and in the queue before their first "
                "step.",
                COUNT,
                Q(hundredths(total(rate("kvscope_preemption_stalled_seconds_total"))), "preempted"),
                Q(hundredths(total(rate("kvscope_request_queue_seconds_sum"))), "queued"),
                colours={"preempted": "orange", "queued": "light-blue"},
                axis="requests standing still",
                span=6,
                calcs=("lastNotNull", "mean"),
                link=to_dashboard("KV pool", KV_POOL),
            ),
            graph(
                403,
                "Prefix hits",
                "Share of the prompt tokens that were in the cache. If it fell at the moment when "
                "first tokens became slow, open the prefix cache for the cause of the misses.",
                RATIO,
                *outstanding(
                    formulas.hit_ratio(RATE_WINDOW, EACH_ENGINE, ENGINE), lowest=True, rank="avg"
                ),
                high=1,
                span=6,
                calcs=("lastNotNull", "mean"),
                link=to_dashboard("Prefix cache", PREFIX_CACHE),
            ),
            graph(
                407,
                "Hits that the fleet loses",
                "Share of the prompt tokens that one replica was asked for and others held "
                "(routing, fetching), or that all had evicted (capacity). From `kvscope fleet`; of "
                "several such processes it is the mean. Open Fleet cache for what to do.",
                RATIO,
                *(
                    Q(fleet.lost(cause, RATE_WINDOW, selector=_OF_THE_MODEL), cause)
                    for cause in (fleet.ROUTING, fleet.FETCHING, fleet.CAPACITY)
                ),
                stacked=True,
                colours=limits.LOSS_COLOURS,
                high=1,
                span=6,
                calcs=("lastNotNull", "mean"),
                when_absent="No `kvscope fleet` is scraped.",
                link=to_dashboard("Fleet cache", FLEET_CACHE),
            ),
            graph(
                404,
                "Ends and refusals",
                "Requests by how they ended. error: see the log. refused: turned away, for any "
                "reason; the KV pool dashboard shows the reasons. abort: clients gave up, often "
                "because they waited. stop_string_or_abort: one or the other; vLLM's scheduler "
                "does not distinguish them. other 5xx: answers of a vLLM's API server to requests "
                "that neither failed nor were refused; see its log.",
                REQUESTS_PER_SECOND,
                Q(total(rate("kvscope_requests_finished_total"), "reason"), "{{reason}}"),
                Q(total(rate("kvscope_requests_rejected_total")), "refused"),
                Q(other_failures, "other 5xx"),
                stacked=True,
                colours=limits.END_COLOURS,
                span=8,
                listed=True,
            ),
            graph(
                405,
                "Tokens computed",
                "What all engines compute together. Prefill that crowds out decode makes tokens "
                "come slowly: lower --max-num-batched-tokens.",
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
                *outstanding(
                    f"min by ({BY_GPU}) ({gpu_room()})", GPU_LEGEND, by=BY_GPU, lowest=True
                ),
                steps=limits.ROOM_AFTER_PEAK_BYTES,
                low=None,
                span=8,
                calcs=("lastNotNull", "min"),
                when_absent="No GPU is read, or its server has no allocator metrics.",
                link=to_dashboard("Memory", MEMORY),
                coarse=True,
            ),
        ],
    )
