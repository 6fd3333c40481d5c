"""Findings about an engine's GPUs: memory that others took, clocks that were held down."""

from collections.abc import Iterator, Sequence

from exporter.answers.why.finding import Finding
from exporter.answers.why.scene import Scene
from exporter.catalogue.gpu_sets import CLOCKS_EVENTS
from exporter.machine.gpu import GpuNote

_LARGE_BYTES = 512 << 20
"""Growth of another process below this is daily life."""
_RECENT_NS = 600 * 10**9
_SLOWING = {reason: bit for reason, bit in CLOCKS_EVENTS.items() if reason != "sw_power_cap"}
"""A card at its power limit is a card at work."""


def neighbours(scene: Scene) -> Iterator[Finding]:
    """Other processes that took memory, the largest growth of each GPU."""
    for name, notes in scene.gpus:
        growth = _largest_growth(scene, notes)
        if growth is None:
            continue
        began_ns, pid, num_bytes = growth
        yield Finding(
            kind="neighbour",
            began_ns=began_ns,
            ended_ns=None,
            text=f"another process (pid {pid}) took {num_bytes / 2**30:.1f} GiB of {name}",
            remedy=f"End pid {pid} or move it to another GPU; or leave room for it with a lower "
            "--gpu-memory-utilization.",
            evidence={"pid": pid, "bytes": num_bytes},
        )


def slowed(scene: Scene) -> Iterator[Finding]:
    """Clocks held down for heat or power."""
    for name, notes in scene.gpus:
        last = notes[-1] if notes else None
        reasons = [reason for reason, bit in _SLOWING.items() if last and last.slowed & bit]
        if not reasons:
            continue
        bits = sum(_SLOWING[reason] for reason in reasons)
        since = notes[-1]
        for note in reversed(notes):
            if not note.slowed & bits:
                break
            since = note
        yield Finding(
            kind="slowed_down",
            began_ns=since.time_ns,
            ended_ns=None,
            text=f"{name} was slowed down ({', '.join(reasons)})",
            remedy="See to its cooling and power: `nvidia-smi -q -d PERFORMANCE,TEMPERATURE`; move "
            "load off it meanwhile.",
        )


def _largest_growth(scene: Scene, notes: Sequence[GpuNote]) -> tuple[int, int, int] | None:
    """When, whose and how much; of processes that still hold it."""
    if not notes:
        return None
    largest: tuple[int, int, int] | None = None
    for pid, present in notes[-1].processes.items():
        if pid in scene.own_pids:
            continue
        began_ns, least = notes[-1].time_ns, present
        for note in reversed(notes):
            if note.time_ns < scene.now_ns - _RECENT_NS:
                break
            held = note.processes.get(pid, 0)
            if held < least:
                least = held
            if present - held < present / 10:
                began_ns = note.time_ns
        known_before = notes[0].processes.get(pid, 0) if len(notes) > 1 else present
        growth = present - max(least, 0 if known_before < present else present)
        if growth >= _LARGE_BYTES and (largest is None or growth > largest[2]):
            largest = began_ns, pid, growth
    return largest
