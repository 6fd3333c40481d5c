"""A card of 141 GB on its way out of memory: what happens, in stages, and what each metric says.

60 GiB of weights, a pool of 57 GiB that fills, a neighbour that takes 18.5 GiB, and then steps
that need as much as the largest one of start-up did.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kvscope_events.events import (
    BlocksAllocated,
    DeviceOutOfMemory,
    EngineEvent,
    PoolCreated,
    RequestArrived,
    RequestPreempted,
)
from kvscope_exporter.machine.gpu import GpuPoller
from tests.fakes.nvml import GIB, MIB, Simulated, h200, machine
from tests.gpu.scrapes import SERVER_PID, Scrapes, torch_sample
from tests.support.waiting import wait_for

WEIGHTS = 60 * GIB
POOL = 57 * GIB
BLOCK = 3 * MIB // 2  # 96 KiB a token, 16 tokens: Qwen3-30B-A3B
NUM_BLOCKS = POOL // BLOCK
CONTEXT = 640 * MIB
NOBODYS = 18 * MIB
PEAK = 4 * GIB
"""Peak of the largest chunk, seen at start-up; its memory was given back afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One moment. Bytes."""

    title: str
    pool_share: float
    neighbour: int = 0
    live: int = 50 * MIB
    cached: int = 450 * MIB
    split: int = 100 * MIB
    retries: int = 0
    ooms: int = 0
    events: tuple[EngineEvent, ...] = field(default=())


STAGES = (
    Stage(title="started, idle", pool_share=0.0),
    Stage(title="pool 40 % in use", pool_share=0.4),
    Stage(title="pool 80 % in use", pool_share=0.8),
    Stage(title="neighbour takes 9 GiB", pool_share=0.8, neighbour=9 * GIB),
    Stage(title="neighbour at 18.5 GiB", pool_share=0.8, neighbour=37 * GIB // 2),
    Stage(
        title="chunk of 3.25 GiB: just",
        pool_share=0.8,
        neighbour=37 * GIB // 2,
        cached=13 * GIB // 4,
        split=50 * MIB,
        retries=1,
    ),
    Stage(
        title="chunk of 4 GiB: out of memory",
        pool_share=0.8,
        neighbour=37 * GIB // 2,
        cached=0,
        split=0,
        retries=2,
        ooms=1,
        events=(
            DeviceOutOfMemory(PEAK, "retried", 8192, 4096),
            RequestPreempted(0, 0, "recompute", "out_of_memory", 512, 32, 1_000_000),
        ),
    ),
)

Said = dict[str, float]
QUESTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "kv usage": ("kvscope_kv_active_ratio", {}),
    "used ratio": ("kvscope_gpu_memory_used_ratio", {}),
    "kv_pool": ("kvscope_gpu_memory_component_bytes", {"component": "kv_pool"}),
    "free": ("kvscope_gpu_memory_free_bytes", {}),
    "other_processes": ("kvscope_gpu_memory_component_bytes", {"component": "other_processes"}),
    "headroom": ("kvscope_gpu_memory_headroom_bytes", {}),
    "activation peak": ("kvscope_gpu_activation_peak_bytes", {}),
    "alloc retries": ("kvscope_gpu_torch_alloc_retries_total", {}),
    "torch ooms": ("kvscope_gpu_torch_ooms_total", {}),
    "engine ooms": ("kvscope_engine_oom_events_total", {"action": "retried"}),
    "preempted, blocks": ("kvscope_preemptions_total", {"cause": "out_of_blocks"}),
    "preempted, memory": ("kvscope_preemptions_total", {"cause": "out_of_memory"}),
}
"""Short name to metric and labels."""

SIGNALS: dict[str, Callable[[Said, Said], bool]] = {
    "other processes grow": lambda now, first: now["other_processes"] > first["other_processes"],
    "headroom below the next peak": lambda now, first: now["headroom"] < now["activation peak"],
    "alloc retries": lambda now, first: now["alloc retries"] > first["alloc retries"],
    "out of memory": lambda now, first: now["engine ooms"] > first["engine ooms"],
    "KV exhaustion": lambda now, first: now["preempted, blocks"] > first["preempted, blocks"],
}
"""Condition on what is said now and was said at first."""


def tell(hardware: Simulated, poller: GpuPoller) -> Iterator[Said]:
    """Play the stages, one after the other, and ask all questions at each."""
    scrapes = Scrapes(poller)
    allocated = 0
    scrapes.tell(PoolCreated(NUM_BLOCKS, 16, BLOCK), RequestArrived(0, 512, 64))
    for stage in STAGES:
        torch_bytes = WEIGHTS + POOL + stage.live + stage.cached
        server = torch_bytes + CONTEXT
        used = server + stage.neighbour + NOBODYS
        processes = f"{SERVER_PID}:{server}"
        if stage.neighbour:
            processes += f",991:{stage.neighbour}"
        hardware.become(machine(h200(processes, used)))
        wanted = round(stage.pool_share * NUM_BLOCKS)
        if wanted > allocated:
            scrapes.tell(BlocksAllocated(0, list(range(allocated, wanted)), "prefill"))
            allocated = wanted
        wait_for(lambda used=used: _seen(poller) == used)  # type: ignore[misc]
        scrapes.tell(
            *stage.events,
            torch_sample(
                weights_bytes=WEIGHTS,
                kv_pool_bytes=POOL,
                allocated_bytes=WEIGHTS + POOL + stage.live,
                active_bytes=WEIGHTS + POOL + stage.live,
                reserved_bytes=torch_bytes,
                inactive_split_bytes=stage.split,
                activation_peak_bytes=PEAK,
                alloc_retries=stage.retries,
                ooms=stage.ooms,
            ),
        )
        parts = scrapes.components()
        assert sum(parts.values()) == scrapes.value("kvscope_gpu_memory_total_bytes")
        assert parts["unattributed"] == NOBODYS
        assert parts["non_torch"] == CONTEXT
        said = {}
        for short, (name, labels) in QUESTIONS.items():
            value = scrapes.value(name, **labels)
            assert value is not None, short
            said[short] = value
        yield said


def table(titles: Iterable[str], said: list[Said]) -> str:
    """As Markdown: a row per stage, bytes in GiB, and the first stage of each signal."""
    columns = (
        *("kv usage", "used ratio", "kv_pool", "free", "other_processes", "headroom"),
        *("activation peak", "alloc retries", "engine ooms"),
    )
    lines = [f"| stage | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for number, (title, values) in enumerate(zip(titles, said, strict=True), 1):
        cells = (_cell(column, values[column]) for column in columns)
        lines.append(f"| {number} {title} | {' | '.join(cells)} |")
    lines += ["", "| signal | speaks first at stage |", "|---|---|"]
    for signal, stage_number in first_spoken(said).items():
        lines.append(f"| {signal} | {'never' if stage_number is None else stage_number} |")
    return "\n".join(lines) + "\n"


def first_spoken(said: list[Said]) -> dict[str, int | None]:
    """Stage, from 1, at which each signal's condition held first."""
    return {
        signal: next((n for n, now in enumerate(said, 1) if holds(now, said[0])), None)
        for signal, holds in SIGNALS.items()
    }


def _seen(poller: GpuPoller) -> int | None:
    """Memory in use as of the process list, once both readings agree."""
    sample = poller.read().sample
    if sample is None or sample.devices[0].processes is None or sample.devices[0].memory is None:
        return None
    used = sample.devices[0].processes.memory.used
    return used if used == sample.devices[0].memory.used else None


def _cell(column: str, value: float) -> str:
    if column in ("alloc retries", "engine ooms"):
        return f"{value:.0f}"
    if column in ("kv usage", "used ratio"):
        return f"{value:.2f}"
    return f"{value / GIB:.2f}"
