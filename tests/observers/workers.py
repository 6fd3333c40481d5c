"""A worker of vLLM as its observer sees it: the methods of start-up, on a CPU."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from kvscope_events.events import EngineEvent
from kvscope_events.observers.endpoints import worker_endpoint
from kvscope_events.observers.vllm.worker import install_worker_hooks
from kvscope_events.wire.subscriber import WireSubscriber
from tests.events.producers import collect


class Wrapper:
    """The part of WorkerWrapperBase that matters here."""

    def __init__(self, worker: "Worker", index: int = 0) -> None:
        self.worker = worker
        self.vllm_config = SimpleNamespace(
            parallel_config=SimpleNamespace(data_parallel_index=index, data_parallel_rank=0),
            model_config=SimpleNamespace(served_model_name=["tiny", "other"], model="/models/t"),
        )

    def init_device(self) -> str:
        self.worker.device = torch.device("cpu")
        return "ready"


class Worker:
    """Starts as a worker does; every method says what it returns."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.device: torch.device | None = None
        self.model_runner: Any = None

    def load_model(self, *, load_dummy_weights: bool = False) -> str:
        model = torch.nn.Linear(8, 4, bias=False)
        self.model_runner = SimpleNamespace(get_model=lambda: model)
        return f"loaded {load_dummy_weights}"

    def determine_available_memory(self) -> int:
        return 4096

    def initialize_from_config(self, kv_cache_config: Any) -> str:
        return f"{len(kv_cache_config.kv_cache_tensors)} tensors"

    def compile_or_warm_up_model(self) -> float:
        return 1.5


def pool_of(*sizes: int) -> SimpleNamespace:
    """A kv_cache_config as up to 0.23."""
    return SimpleNamespace(kv_cache_tensors=[SimpleNamespace(size=size) for size in sizes])


def hooked_wrapper(init_device: Callable[[Wrapper], str]) -> type[Wrapper]:
    hooked = type("Hooked", (Wrapper,), {"init_device": init_device})
    install_worker_hooks(hooked)
    return hooked


def started(wrapper: type[Wrapper], worker: Worker) -> Wrapper:
    """A worker that has gone through its start-up, each answer as without an observer."""
    made = wrapper(worker)
    assert made.init_device() == "ready"
    assert worker.load_model(load_dummy_weights=True) == "loaded True"
    assert worker.determine_available_memory() == 4096
    assert worker.initialize_from_config(pool_of(1000, 24)) == "2 tensors"
    assert worker.compile_or_warm_up_model() == 1.5
    return made


def events_until(kind: type[EngineEvent], rank: int = 0, server: str = "vllm") -> list[EngineEvent]:
    reader = WireSubscriber(worker_endpoint(0, rank, server))
    try:
        taken = collect(
            reader,
            lambda taken: any(isinstance(e, kind) for one in taken for e in one.batch.events),
        )
    finally:
        reader.close()
    return [event for one in taken for event in one.batch.events]
