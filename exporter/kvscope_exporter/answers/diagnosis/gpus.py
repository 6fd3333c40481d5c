"""Findings about an engine's GPUs: memory that others took, clocks that were held down."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvscope_exporter import words
from kvscope_exporter.answers.diagnosis.finding import Finding
from kvscope_exporter.answers.diagnosis.scene import Scene
from kvscope_exporter.catalogue.gpu_sets import CLOCKS_EVENTS
from kvscope_exporter.machine.gpu import GpuNote

_LARGE_BYTES = 512 << 20
"""Growth of another process below this is daily life."""
_NEARLY_ALL = 0.9
"""A process that allocates step by step has taken its memory when it has so much of it."""
_RECENT_NS = 600 * 10**9
_SLOWING = {reason: bit for reason, bit in CLOCKS_EVENTS.items() if reason != "sw_power_cap"}
"""A card at its power limit is a card at work."""
SLOWING = sum(_SLOWING.values())
"""All bits of CLOCKS_EVENTS that hold clocks down for heat or power."""


class Growth(NamedTuple):
    """Memory that a process has taken."""

    began_ns: int
    pid: int
    num_bytes: int


def neighbours(scene: Scene) -> Iterator[Finding]:
    """Other processes that took memory, the largest growth of each GPU."""
    for name, notes in scene.gpus:
        growth = largest_growth(notes, scene.own_pids, scene.now_ns - _RECENT_NS)
        if growth is None:
            continue
        began_ns, pid, num_bytes = growth
        yield Finding(
            kind="neighbour",
            began_ns=began_ns,
            ended_ns=None,
            text=f"another process (pid {pid}) took {words.size(num_bytes)} of {name}",
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


def largest_growth(
    notes: Sequence[GpuNote], own_pids: frozenset[int], since_ns: int
) -> Growth | None:
    """The other process that has taken most since then, and holds it; None: all took little."""
    present = notes[-1].processes if notes else {}
    grown = [_growth_of(pid, notes, since_ns) for pid in present.keys() - own_pids]
    large = [growth for growth in grown if growth.num_bytes >= _LARGE_BYTES]
    return max(large, key=lambda growth: growth.num_bytes, default=None)


def _growth_of(pid: int, notes: Sequence[GpuNote], since_ns: int) -> Growth:
    """Since its least use."""
    present = least = notes[-1].processes[pid]
    began_ns, is_held = notes[-1].time_ns, True
    for note in reversed(notes):
        held = note.processes.get(pid, 0)
        least = min(least, held)
        is_held = is_held and held > _NEARLY_ALL * present
        if is_held:
            began_ns = note.time_ns
        if note.time_ns <= since_ns:  # it held at that moment
            break
    return Growth(began_ns, pid, present - least)
