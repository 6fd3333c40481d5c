"""One state machine per question about the events; none of them knows Prometheus."""

from kvscope_exporter.fold.cache import Cache
from kvscope_exporter.fold.churn import Churn
from kvscope_exporter.fold.device_memory import DeviceMemory, TimedSample
from kvscope_exporter.fold.exhaustion import Exhaustion
from kvscope_exporter.fold.fold import Fold, Folds
from kvscope_exporter.fold.front_end import FrontEnd
from kvscope_exporter.fold.gen_ai import GenAi
from kvscope_exporter.fold.groups import Groups
from kvscope_exporter.fold.histogram import Exemplar, Histogram
from kvscope_exporter.fold.introduction import Census, Introduction
from kvscope_exporter.fold.latency import Latency
from kvscope_exporter.fold.ledger import Ledger
from kvscope_exporter.fold.lengths import Lengths
from kvscope_exporter.fold.preemption import Preemption
from kvscope_exporter.fold.recent import Recent
from kvscope_exporter.fold.requests import Requests
from kvscope_exporter.fold.steps import Steps
from kvscope_exporter.fold.tenants import Tenants
from kvscope_exporter.fold.tiers import Tiers
from kvscope_exporter.fold.vllm import Vllm

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
