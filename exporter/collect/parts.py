"""The parts of an engine's page, and with them its folds: the one list of both."""

from collections.abc import Collection
from typing import Any

from exporter.collect.device_memory import collect_out_of_memory
from exporter.collect.exhaustion import collect_exhaustion
from exporter.collect.part import Part
from exporter.collect.pool import collect_churn, collect_pool
from exporter.collect.prefix import collect_prefix
from exporter.collect.requests import (
    collect_latency,
    collect_preemption,
    collect_ready,
    collect_requests,
    collect_steps,
)
from exporter.collect.sizing import collect_sizing
from exporter.collect.vllm import (
    collect_vllm,
    collect_vllm_latency,
    collect_vllm_pool,
    collect_vllm_prefix,
    collect_vllm_requests,
)
from exporter.collect.vllm_legacy import (
    collect_legacy_latency,
    collect_legacy_pool,
    collect_legacy_prefix,
    collect_legacy_requests,
)
from exporter.fold import (
    Cache,
    Churn,
    DeviceMemory,
    Exhaustion,
    Introduction,
    Latency,
    Ledger,
    Preemption,
    Requests,
    Steps,
    Vllm,
)

PARTS: tuple[Part[Any], ...] = (
    Part("engine", Introduction, collect_ready),
    Part("pool", Ledger, collect_pool),
    Part("sizing", Ledger, collect_sizing),
    Part("churn", Churn, collect_churn),
    Part("prefix", Cache, collect_prefix),
    Part("requests", Requests, collect_requests),
    Part("latency", Latency, collect_latency),
    Part("steps", Steps, collect_steps),
    Part("preemption", Preemption, collect_preemption),
    Part("exhaustion", Exhaustion, collect_exhaustion),
    Part("out_of_memory", DeviceMemory, collect_out_of_memory),
    Part("vllm_requests", Requests, collect_vllm_requests, compat="vllm"),
    Part("vllm_pool", Ledger, collect_vllm_pool, compat="vllm"),
    Part("vllm_prefix", Cache, collect_vllm_prefix, compat="vllm"),
    Part("vllm_latency", Latency, collect_vllm_latency, compat="vllm"),
    Part("vllm", Vllm, collect_vllm, compat="vllm"),
    Part("legacy_pool", Ledger, collect_legacy_pool, compat="vllm-legacy"),
    Part("legacy_prefix", Cache, collect_legacy_prefix, compat="vllm-legacy"),
    Part("legacy_requests", Requests, collect_legacy_requests, compat="vllm-legacy"),
    Part("legacy_latency", Latency, collect_legacy_latency, compat="vllm-legacy"),
)


def parts_of(compat: Collection[str]) -> tuple[Part[Any], ...]:
    """The parts of kvscope's own names, and those of the compatibility sets asked for."""
    return tuple(part for part in PARTS if part.compat is None or part.compat in compat)
