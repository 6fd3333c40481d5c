"""What tests of the page share: a fixed clock, an exporter on a bus; and all of `stream`."""

from collections.abc import Collection

from prometheus_client.core import Metric as Family

from exporter.catalogue import COMPAT_SETS
from exporter.clock import Clock
from exporter.engine_info import EngineInfo
from exporter.exposition import Exporter
from kvscope_events.bus import Subscription
from tests.exporter.machine import MACHINE, NOW_NS
from tests.exporter.stream import ModelPool, batch_of, block_hash, ended, finished, put, step

__all__ = [
    "ENGINE",
    "FIXED_CLOCK",
    "ModelPool",
    "batch_of",
    "block_hash",
    "ended",
    "families",
    "finished",
    "make_exporter",
    "put",
    "step",
    "value",
]

FIXED_CLOCK = Clock(monotonic_ns=lambda: NOW_NS, wall_ns=lambda: NOW_NS)
ENGINE = EngineInfo(model_name="demo", max_model_len=131_072, gpu_memory_utilization=0.9)


def make_exporter(
    *, compat: Collection[str] = COMPAT_SETS, queue_batches: int = 64
) -> tuple[Exporter, Subscription]:
    """An exporter with a fixed clock on a fixed machine; nothing runs, `families` drains."""
    subscription = Subscription(queue_batches)
    exporter = Exporter(subscription, ENGINE, compat=compat, machine=MACHINE, clock=FIXED_CLOCK)
    return exporter, subscription


def families(exporter: Exporter) -> dict[str, Family]:
    """By name as in OpenMetrics, `process_*` left out."""
    return {
        family.name: family
        for family in exporter.registry.collect()
        if not family.name.startswith("process_")
    }


def value(exporter: Exporter, name: str, **labels: str) -> float | None:
    """Of one series, whatever its constant labels; None where it is absent."""
    for family in exporter.registry.collect():
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None
