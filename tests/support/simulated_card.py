"""The simulated card of `tools.pictures.card` under an engine in simulated time."""

from pathlib import Path

from kvscope_engine.sizing.memory import kv_budget, requested_bytes
from kvscope_engine.step_plan import SampledToken, StepPlan
from kvscope_events.events import DeviceMemorySampled
from kvscope_exporter.machine.gpu import DeviceSample, GpuSample, Identity, Memory, Reading
from kvscope_exporter.machine.host_memory import HostMemory
from kvscope_exporter.machine.machine import Machine
from tests.fakes.nvml.states import UUID
from tests.support.paced import Paced, WordlessRunner
from tools.pictures.card import (
    ACTIVATIONS_PER_STEP,
    ACTIVATIONS_PER_TOKEN,
    BYTES_PER_BLOCK,
    DRIVER_RESERVED,
    NON_TORCH,
    TOTAL,
    WEIGHTS,
    Card,
)

_NOWHERE = Path("/nonexistent")


class CardRunner(WordlessRunner):
    """Steps take the card's memory, or fail for lack of it."""

    def __init__(self, card: Card) -> None:
        self._card = card

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        self._card.before_step(plan.num_tokens)
        return super().execute(plan)

    def drop_caches(self) -> None:
        self._card.drop_caches()

    def sample_memory(self) -> DeviceMemorySampled:
        return self._card.sample()


class CardDriver:
    """NVML's present readings of the card."""

    def __init__(self, card: Card) -> None:
        self._card = card

    def read(self) -> Reading:
        free = self._card.free
        memory = Memory(
            total=TOTAL,
            free=free,
            reserved=DRIVER_RESERVED,
            used=TOTAL - DRIVER_RESERVED - free,
        )
        device = DeviceSample(
            identity=Identity(index=0, uuid=UUID.format(0)), up=True, memory=memory
        )
        sample = GpuSample(
            taken_ns=0,
            duration_seconds=0.0,
            driver_version=None,
            cuda_version=None,
            devices=(device,),
        )
        return Reading(sample=sample, last=sample, errors={}, xids={})


def paced_on_card(
    *,
    utilization: float | None = None,
    num_blocks: int = 0,
    foreign_bytes: int = 0,
    max_num_batched_tokens: int,
    max_num_seqs: int = 32,
) -> tuple[Paced, Card]:
    """An engine whose pool has its size from the engine's own rule, or that number of blocks."""
    card = Card(_NOWHERE, _NOWHERE, foreign=foreign_bytes)
    terms: dict[str, int] = {}
    if utilization is not None:
        peak = ACTIVATIONS_PER_STEP + max_num_batched_tokens * ACTIVATIONS_PER_TOKEN
        total = TOTAL - DRIVER_RESERVED  # as CUDA counts it
        requested = requested_bytes(total, utilization)
        num_blocks = kv_budget(requested, WEIGHTS, peak, NON_TORCH) // BYTES_PER_BLOCK
        card.peak = peak  # measured at start-up
        terms = {
            "total": total,
            "requested": requested,
            "in_use_at_start": foreign_bytes,
            "weights": WEIGHTS,
            "activation_peak": peak,
            "non_torch": NON_TORCH,
            "kv_pool": num_blocks * BYTES_PER_BLOCK,
        }
    card.hold_pool(num_blocks)
    engine = Paced(
        num_blocks=num_blocks,
        bytes_per_block=BYTES_PER_BLOCK,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        runner=CardRunner(card),
        machine=Machine(gpu=CardDriver(card), host=_unknown, available=lambda: None),
        terms=terms,
        gpu_memory_utilization=utilization,
    )
    return engine, card


def _unknown(_pid: int) -> HostMemory:
    return HostMemory(resident=None, limit=None, usage=None, unreclaimable=None)
