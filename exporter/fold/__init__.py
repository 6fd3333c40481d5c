"""One state machine per question about the events; none of them knows Prometheus."""

from exporter.fold.cache import Cache
from exporter.fold.churn import Churn
from exporter.fold.device_memory import DeviceMemory, TimedSample
from exporter.fold.exhaustion import Exhaustion
from exporter.fold.fold import Fold, Folds
from exporter.fold.front_end import FrontEnd
from exporter.fold.gen_ai import GenAi
from exporter.fold.groups import Groups
from exporter.fold.histogram import Exemplar, Histogram
from exporter.fold.introduction import Census, Introduction
from exporter.fold.latency import Latency
from exporter.fold.ledger import Ledger
from exporter.fold.lengths import Lengths
from exporter.fold.preemption import Preemption
from exporter.fold.recent import Recent
from exporter.fold.requests import Requests
from exporter.fold.steps import Steps
from exporter.fold.tenants import Tenants
from exporter.fold.tiers import Tiers
from exporter.fold.vllm import Vllm

__all__ = [
    "Cache",
    "Census",
    "Churn",
    "DeviceMemory",
    "Exemplar",
    "Exhaustion",
    "Fold",
    "Folds",
    "FrontEnd",
    "GenAi",
    "Groups",
    "Histogram",
    "Introduction",
    "Latency",
    "Ledger",
    "Lengths",
    "Preemption",
    "Recent",
    "Requests",
    "Steps",
    "Tenants",
    "Tiers",
    "TimedSample",
    "Vllm",
]
