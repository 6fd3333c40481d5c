"""Compatibility: vLLM's current names with vLLM's semantics and buckets, and a former one that
nearly every article and many dashboards still start with.

vLLM treats each sequence of a call as a request of its own, so its "requests" are our sequences.
"""

from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.catalogue.metric import ENGINE, Metric
from kvscope_exporter.catalogue.pool import STATE_EVENTS
from kvscope_exporter.state import buckets

_OURS: tuple[ServerKind, ...] = ("kvscope",)
"""Only vLLM's own page has these: it may sleep, defer requests, load KV through a connector, and
its scheduler does not know which sequences belong to one call.
"""


def _request_seconds(name: str, help: str) -> Metric:
    return Metric(
        name=name,
        kind="histogram",
        help=help,
        unit="seconds",
        group="vllm",
        buckets=buckets.VLLM_REQUEST_SECONDS,
        events=("SequenceFinished",),
    )


def _summed(
    name: str,
    help: str,
    unit: str,
    events: tuple[str, ...] = ("SequenceFinished",),
    servers: tuple[ServerKind, ...] = (),
) -> Metric:
    """A histogram in vLLM, whose own dashboards read only its sum and count, if anything.

    Each bound is a series, and a page has less than 600.
    """
    return Metric(
        name=name,
        kind="summary",
        help=help,
        unit=unit,
        group="vllm",
        events=events,
        servers=servers,
    )


def _request_tokens(name: str, help: str) -> Metric:
    return Metric(
        name=name,
        kind="histogram",
        help=f"{help} The buckets end at the longest sequence of the model.",
        unit="tokens",
        group="vllm",
        buckets=buckets.VLLM_REQUEST_TOKENS,
        events=("SequenceFinished",),
    )


VLLM = (
    Metric(
        name="vllm:num_requests_running",
        kind="gauge",
        help="Number of sequences in model execution batches.",
        unit="requests",
        group="vllm",
        events=("StepCompleted", "SequenceFinished"),
    ),
    Metric(
        name="vllm:num_requests_waiting",
        kind="gauge",
        help="Number of sequences waiting to be processed, preempted ones included.",
        unit="requests",
        group="vllm",
        events=("StepCompleted", "SequenceAdded", "SequenceFinished"),
    ),
    Metric(
        name="vllm:num_requests_waiting_by_reason",
        kind="gauge",
        help="Number of sequences waiting by reason: capacity, since our engine has no other; "
        "deferred stays 0.",
        unit="requests",
        group="vllm",
        labels={**ENGINE, "reason": ("capacity", "deferred")},
        events=("StepCompleted", "SequenceAdded", "SequenceFinished"),
        servers=_OURS,
    ),
    Metric(
        name="vllm:engine_sleep_state",
        kind="gauge",
        help="State of sleep, 1 for the present one; kvscope's own engine is always awake.",
        notes="Absent while it takes no requests: before its model is loaded, and once it has "
        "failed.",
        unit="",
        group="vllm",
        labels={**ENGINE, "sleep_state": ("awake", "weights_offloaded", "discard_all")},
        events=("Hello",),
        servers=_OURS,
    ),
    Metric(
        name="vllm:kv_cache_usage_perc",
        kind="gauge",
        help="KV-cache usage: share of the usable blocks that sequences reference, 0 to 1.",
        unit="ratio",
        group="vllm",
        events=STATE_EVENTS,
    ),
    Metric(
        name="vllm:gpu_cache_usage_perc",
        kind="gauge",
        help="Former name of vllm:kv_cache_usage_perc, used until vLLM 0.11.",
        unit="ratio",
        group="vllm",
        events=STATE_EVENTS,
    ),
    Metric(
        name="vllm:prefix_cache_queries_total",
        kind="counter",
        help="Tokens that the prefix cache was queried for, at first admissions only.",
        unit="tokens",
        group="vllm",
        events=("PrefixLookup", "PoolCreated"),
    ),
    Metric(
        name="vllm:prefix_cache_hits_total",
        kind="counter",
        help="Tokens that the prefix cache held, at first admissions only.",
        unit="tokens",
        group="vllm",
        events=("PrefixLookup", "PoolCreated"),
    ),
    Metric(
        name="vllm:num_preemptions_total",
        kind="counter",
        help="Preemptions, counted when the preempted sequence produces its next token.",
        unit="preemptions",
        group="vllm",
        events=("RequestPreempted", "StepCompleted", "SequenceFinished"),
    ),
    Metric(
        name="vllm:prompt_tokens_total",
        kind="counter",
        help="Prompt tokens of all sequences, added when a sequence produces its first token.",
        unit="tokens",
        group="vllm",
        events=("SequenceAdded", "StepCompleted"),
    ),
    Metric(
        name="vllm:prompt_tokens_by_source_total",
        kind="counter",
        help="Prompt tokens of all sequences by source: computed, found in the prefix cache, or "
        "loaded by a connector.",
        unit="tokens",
        group="vllm",
        labels={**ENGINE, "source": ("local_compute", "local_cache_hit", "external_kv_transfer")},
        events=("SequenceAdded", "PoolCreated", "StepCompleted"),
        servers=_OURS,
    ),
    Metric(
        name="vllm:prompt_tokens_cached_total",
        kind="counter",
        help="Prompt tokens that the prefix cache held or a connector loaded, added at the first "
        "token.",
        unit="tokens",
        group="vllm",
        events=("SequenceAdded", "PoolCreated", "StepCompleted"),
        servers=_OURS,
    ),
    Metric(
        name="vllm:prompt_tokens_cached_by_source_total",
        kind="counter",
        help="Prompt tokens that the prefix cache held at first admissions, by tier: of the device "
        "only, since a connector knows from where it loads.",
        unit="tokens",
        group="vllm",
        labels={**ENGINE, "source": ("device",)},
        events=("PrefixLookup", "PoolCreated"),
        servers=_OURS,
    ),
    Metric(
        name="vllm:generation_tokens_total",
        kind="counter",
        help="Tokens generated.",
        unit="tokens",
        group="vllm",
        events=("StepCompleted",),
    ),
    Metric(
        name="vllm:request_success_total",
        kind="counter",
        help="Sequences that finished, by reason. abort stays 0, as vLLM counts none whose client "
        "has left, and so does repetition, which no engine reports.",
        unit="requests",
        group="vllm",
        labels={**ENGINE, "finished_reason": ("stop", "length", "abort", "error", "repetition")},
        events=("SequenceFinished",),
    ),
    Metric(
        name="vllm:iteration_tokens_total",
        kind="histogram",
        help="Tokens of each step with output: the prompt tokens computed for sequences that "
        "produced their first token, and the tokens generated.",
        unit="tokens",
        group="vllm",
        buckets=buckets.VLLM_ITERATION_TOKENS,
        events=("SequenceAdded", "RequestScheduled", "PoolCreated", "StepCompleted"),
    ),
    _request_tokens("vllm:request_prompt_tokens", "Prompt tokens of each sequence that finished."),
    _request_tokens(
        "vllm:request_generation_tokens", "Generated tokens of each sequence that finished."
    ),
    _summed(
        "vllm:request_prefill_kv_computed_tokens",
        "Prompt tokens computed at its first admission, of each sequence that finished; one that "
        "was never admitted is left out.",
        "tokens",
    ),
    _summed(
        "vllm:request_max_num_generation_tokens",
        "Generated tokens of the longest sequence of each request that finished.",
        "tokens",
        ("SequenceFinished", "RequestFinished"),
        _OURS,
    ),
    Metric(
        name="vllm:time_to_first_token_seconds",
        kind="histogram",
        help="Time from arrival to the first token of each sequence.",
        unit="seconds",
        group="vllm",
        buckets=buckets.VLLM_FIRST_TOKEN_SECONDS,
        events=("SequenceAdded", "FirstToken", "StepCompleted"),
    ),
    Metric(
        name="vllm:inter_token_latency_seconds",
        kind="histogram",
        help="Time between consecutive outputs of a sequence, each a token or several.",
        unit="seconds",
        group="vllm",
        buckets=buckets.VLLM_INTER_TOKEN_SECONDS,
        events=("StepCompleted",),
    ),
    Metric(
        name="vllm:request_time_per_output_token_seconds",
        kind="histogram",
        help="Decode time of each sequence that finished, divided by its tokens after the first.",
        unit="seconds",
        group="vllm",
        buckets=buckets.VLLM_INTER_TOKEN_SECONDS,
        events=("SequenceFinished",),
    ),
    _request_seconds(
        "vllm:e2e_request_latency_seconds",
        "Time from arrival to the end of each sequence.",
    ),
    _request_seconds(
        "vllm:request_queue_time_seconds",
        "Time from arrival until each sequence first ran, observed when it ended.",
    ),
    _summed(
        "vllm:request_prefill_time_seconds",
        "Time from the first run to the first token of each sequence, observed when it ended.",
        "seconds",
    ),
    _summed(
        "vllm:request_decode_time_seconds",
        "Time from the first to the last token of each sequence, observed when it ended.",
        "seconds",
    ),
    Metric(
        name="vllm:cache_config_info",
        kind="gauge",
        help="Configuration of the cache as labels, as far as it is known; the value is 1.",
        unit="",
        group="vllm",
        labels=dict.fromkeys(
            (
                "engine",
                "block_size",
                "num_gpu_blocks",
                "enable_prefix_caching",
                "cache_dtype",
                "kv_cache_size_tokens",
                "kv_cache_max_concurrency",
                "gpu_memory_utilization",
                "prefix_caching_hash_algo",
            )
        ),
        events=("PoolCreated",),
    ),
)
