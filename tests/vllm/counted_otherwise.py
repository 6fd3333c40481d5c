"""Counters under vLLM's names that may differ from vLLM's own, each with the reason in its source.

Most are due to clients that leave, or to stop strings: the scheduler learns of both after it has
computed another token or two, which its front end then drops: docs/reference/vllm-names.md.
"""

from tests.support.environments import Reason

_DROPPED = Reason(
    "v1/engine/output_processor.py",
    (
        "req_state = self.request_states.get(req_id)",
        "# Ignore output for already-aborted request.",
        "continue",
        "self._update_stats_from_output(",
    ),
)
"""Tokens of a request that the front end has forgotten are in none of its counters."""
_WITH_THE_NEXT_TOKEN = Reason(
    "v1/metrics/stats.py",
    ("if output.events is not None:", "elif event.type == EngineCoreEventType.PREEMPTED:"),
)
"""A preemption is counted with a token that the front end takes, so not with a dropped one."""
_AT_THE_STOP = Reason(
    "v1/engine/output_processor.py",
    ("# detected stop string, abort needed in EngineCore.", "self._update_stats_from_finished("),
)
"""A request is finished, and its time ends, where the front end sees its stop string."""
_BY_API_SERVER = Reason(
    "v1/core/sched/scheduler.py",
    (
        "outputs[request.client_index].append(",
        "client_index: EngineCoreOutputs(outputs=outs)",
        "# Return stats to only one of the front-ends.",
    ),
)
"""Each API server gets its part of a step's outputs, and counts an iteration of its own."""
_SUM_OVER_RANKS = Reason("v1/engine/core_client.py", ("num_gpu_blocks += response.num_gpu_blocks",))
_FROM_ARRIVAL = Reason(
    "v1/metrics/stats.py",
    (
        "first_token_latency = self._time_since(req_stats.arrival_time)",
        "e2e_latency = self._time_since(req_stats.arrival_time)",
    ),
)
"""Its seconds begin in the API server."""
_BY_CONNECTOR = Reason(
    "v1/metrics/loggers.py",
    ('name="vllm:prompt_tokens_cached_by_source"', "CacheHitSource.DEVICE.value"),
)
_AS_CONFIGURED = Reason(
    "config/cache.py", ('cache_dtype: CacheDType = "auto"', "def metrics_info(")
)

SEVERAL_API_SERVERS = {"vllm:iteration_tokens_total": _BY_API_SERVER}
"""By family: what differs where more than one API server serves a rank; the sums are equal."""
AFTER_A_STOP = {
    "vllm:generation_tokens": _DROPPED,
    "vllm:request_generation_tokens": _AT_THE_STOP,
    "vllm:iteration_tokens_total": _DROPPED,
    "vllm:inter_token_latency_seconds": _DROPPED,
    "vllm:request_time_per_output_token_seconds": _AT_THE_STOP,
    "vllm:request_decode_time_seconds": _AT_THE_STOP,
    "vllm:e2e_request_latency_seconds": _AT_THE_STOP,
}
"""By family: what differs once requests have ended at stop strings."""
WHEN_CLIENTS_LEAVE = {
    "vllm:generation_tokens": _DROPPED,
    "vllm:iteration_tokens_total": _DROPPED,
    "vllm:inter_token_latency_seconds": _DROPPED,
    "vllm:prompt_tokens": _DROPPED,
    "vllm:prompt_tokens_by_source": _DROPPED,
    "vllm:prompt_tokens_cached": _DROPPED,
    "vllm:time_to_first_token_seconds": _DROPPED,
    "vllm:num_preemptions": _WITH_THE_NEXT_TOKEN,
}
"""By family: what differs once clients have left, by at most a step's tokens for each."""
REASONS = frozenset(
    {
        *SEVERAL_API_SERVERS.values(),
        *AFTER_A_STOP.values(),
        *WHEN_CLIENTS_LEAVE.values(),
        *(_SUM_OVER_RANKS, _FROM_ARRIVAL, _BY_CONNECTOR, _AS_CONFIGURED),
    }
)
