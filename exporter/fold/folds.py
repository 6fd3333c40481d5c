"""All folds of one engine, by name."""

from dataclasses import dataclass, field

from exporter.fold.census import Census
from exporter.fold.churn import Churn
from exporter.fold.device_memory import DeviceMemory
from exporter.fold.exhaustion import Exhaustion
from exporter.fold.fold import Fold
from exporter.fold.latency import Latency
from exporter.fold.ledger import Ledger
from exporter.fold.preemption import Preemption
from exporter.fold.prefix import Prefix
from exporter.fold.requests import Requests
from exporter.fold.steps import Steps
from exporter.fold.vllm import Vllm


@dataclass(frozen=True, slots=True)
class Folds:
    """One of each; `vllm` only where its names are shown."""

    vllm: Vllm | None = None
    ledger: Ledger = field(default_factory=Ledger)
    churn: Churn = field(default_factory=Churn)
    prefix: Prefix = field(default_factory=Prefix)
    preemption: Preemption = field(default_factory=Preemption)
    requests: Requests = field(default_factory=Requests)
    latency: Latency = field(default_factory=Latency)
    steps: Steps = field(default_factory=Steps)
    exhaustion: Exhaustion = field(default_factory=Exhaustion)
    device_memory: DeviceMemory = field(default_factory=DeviceMemory)
    census: Census = field(default_factory=Census)

    @property
    def all(self) -> tuple[Fold, ...]:
        folds: tuple[Fold, ...] = (
            self.ledger,
            self.churn,
            self.prefix,
            self.preemption,
            self.requests,
            self.latency,
            self.steps,
            self.exhaustion,
            self.device_memory,
            self.census,
        )
        return folds if self.vllm is None else (*folds, self.vllm)
