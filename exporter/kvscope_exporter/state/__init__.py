"""One state machine per question about the events; none of them knows Prometheus."""

from kvscope_exporter.state.cache import Cache
from kvscope_exporter.state.churn import Churn
from kvscope_exporter.state.device_memory import DeviceMemory, TimedSample
from kvscope_exporter.state.exhaustion import Exhaustion
from kvscope_exporter.state.fold import Fold, Folds
from kvscope_exporter.state.front_end import FrontEnd
from kvscope_exporter.state.gen_ai import GenAi
from kvscope_exporter.state.groups import Groups
from kvscope_exporter.state.histogram import Exemplar, Histogram
from kvscope_exporter.state.introduction import EventCounts, HelloTracker
from kvscope_exporter.state.latency import Latency
from kvscope_exporter.state.ledger import Ledger
from kvscope_exporter.state.lengths import Lengths
from kvscope_exporter.state.preemption import Preemption
from kvscope_exporter.state.recent import LoadWindow
from kvscope_exporter.state.requests import Requests
from kvscope_exporter.state.steps import Steps
from kvscope_exporter.state.tenants import Tenants
from kvscope_exporter.state.tiers import Tiers
from kvscope_exporter.state.time_ledger import TimeLedger
from kvscope_exporter.state.vllm import Vllm

__all__ = [
    "Cache",
    "Churn",
    "DeviceMemory",
    "EventCounts",
    "Exemplar",
    "Exhaustion",
    "Fold",
    "Folds",
    "FrontEnd",
    "GenAi",
    "Groups",
    "HelloTracker",
    "Histogram",
    "Latency",
    "Ledger",
    "Lengths",
    "LoadWindow",
    "Preemption",
    "Requests",
    "Steps",
    "Tenants",
    "Tiers",
    "TimeLedger",
    "TimedSample",
    "Vllm",
]
