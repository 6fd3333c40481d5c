"""Shared by tests of the page: a fixed clock, an exporter on a bus; and all of `stream`."""

from collections.abc import Collection

from prometheus_client.core import Metric as Family

from kvscope_events.bus import Subscription
from kvscope_exporter.catalogue import COMPAT_SETS
from kvscope_exporter.clock import Clock
from kvscope_exporter.targets.exporter import Exporter, in_process
from tests.exporter.machine import MACHINE, NOW_NS
from tests.exporter.stream import (
    HELLO,
    ModelPool,
    batch_of,
    block_hash,
    ended,
    finished,
    hello,
    put,
    step,
)

__all__ = [
    "FIXED_CLOCK",
    "HELLO",
    "ModelPool",
    "batch_of",
    "block_hash",
    "ended",
    "families",
    "finished",
    "hello",
    "make_exporter",
    "put",
    "step",
    "value",
]

FIXED_CLOCK = Clock(monotonic_ns=lambda: NOW_NS, wall_ns=lambda: NOW_NS)


def make_exporter(
    *, compat: Collection[str] = COMPAT_SETS, queue_batches: int = 64
) -> tuple[Exporter, Subscription]:
    """An exporter of an engine that has said Hello, with a fixed clock on a fixed machine.

    Nothing runs; whatever reads a page drains. The next batch is number 0.
    """
    subscription = Subscription(queue_batches)
    put(subscription, -1, 0, HELLO)
    exporter = in_process(subscription, compat=compat, machine=MACHINE, clock=FIXED_CLOCK)
    return exporter, subscription


def families(exporter: Exporter) -> dict[str, Family]:
    """By name as in OpenMetrics, `process_*` left out."""
    return {
        family.name: family
        for family in exporter.registry.collect()
        if not family.name.startswith("process_")
    }


def value(exporter: Exporter, name: str, **labels: str) -> float | None:
    """The value of one series, whatever its constant labels; None where it is absent."""
    for family in exporter.registry.collect():
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None
