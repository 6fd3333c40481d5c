"""Compatibility: vLLM's `--kv-cache-metrics`, which samples blocks; here every block counts."""

from kvscope_exporter.catalogue.metric import Metric
from kvscope_exporter.catalogue.pool import STATE_EVENTS
from kvscope_exporter.state.buckets import VLLM_RESIDENCY_SECONDS


def _seconds(name: str, help: str) -> Metric:
    return Metric(
        name=f"vllm:kv_block_{name}_seconds",
        kind="histogram",
        help=f"{help}, of every block; vLLM takes samples.",
        unit="seconds",
        group="vllm-residency",
        buckets=VLLM_RESIDENCY_SECONDS,
        events=STATE_EVENTS,
    )


VLLM_RESIDENCY = (
    _seconds(
        "lifetime",
        "Time from becoming findable to eviction for lack of room (in vLLM: from allocation to "
        "reuse)",
    ),
    _seconds("idle_before_evict", "Time from the last reference to eviction for lack of room"),
    _seconds(
        "reuse_gap",
        "Time from the last reference to the next one by a prefix hit (in vLLM between the last "
        "accesses)",
    ),
)
