"""Combined reports of one engine's processes: its scheduler's, and those of its workers.

They share labels, so a page has each family once.
"""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import Metric as Family

from kvscope_exporter.collect.parts import Guard
from kvscope_exporter.collect.sizing import collect_host, collect_terms
from kvscope_exporter.machine.host_memory import sum_processes
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.targets.engine_page import EnginePage

SIZING = "kvscope_kv_pool_sizing_bytes"


def collect_processes(
    engines: Sequence[EnginePage], guard: Guard, machine: Machine, now_ns: int
) -> Iterator[Family]:
    """Host memory, and the terms of a pool whose creator does not know them."""
    processes: dict[tuple[str, str], list[EnginePage]] = {}
    for shown in engines:
        if shown.hello is not None and not shown.is_alike and not shown.is_front_end:
            processes.setdefault(shown.labels, []).append(shown)
    for of_engine in processes.values():
        yield from _ready(of_engine, guard)
        yield from _host(of_engine, guard, machine, now_ns)
        yield from _sizing(of_engine, guard)


def _ready(processes: Sequence[EnginePage], guard: Guard) -> Iterable[Family]:
    """An engine of which only workers report is still loading, or has died before them; unless
    they say that it takes requests. One whose scheduler is on another host is on the page there."""
    live = [shown for shown in processes if shown.up]
    if not live or any(shown.worker is None or shown.is_remote for shown in live):
        return []
    had_scheduler = any(shown.worker is None for shown in processes)
    ready = not had_scheduler and all(
        shown.hello is not None and shown.hello.ready for shown in live
    )
    return guard.read("requests", lambda: [live[0].maker.single("kvscope_engine_ready", ready)])


def _host(
    processes: Sequence[EnginePage], guard: Guard, machine: Machine, now_ns: int
) -> Iterable[Family]:
    """Absent if one of them runs elsewhere: the sum would be incomplete."""
    live = [shown for shown in processes if shown.up]
    if not live or not all(shown.is_here for shown in live):
        return []
    pids = dict.fromkeys(shown.hello.pid for shown in live if shown.hello is not None)
    pinned = [
        history[-1].event.pinned_host_bytes
        for shown in live
        for history in shown.memory_samples.values()
        if history and history[-1].is_fresh(now_ns)
    ]
    known = [number for number in pinned if number is not None]

    def read() -> Iterable[Family]:
        host = sum_processes([machine.host(pid) for pid in pids])
        return collect_host(live[0].maker, host, sum(known) if known else None)

    return guard.read("host", read)


def _sizing(processes: Sequence[EnginePage], guard: Guard) -> Iterable[Family]:
    """From the first rank that reported them, unless the pool's own terms are shown."""
    if any(family.name == SIZING for shown in processes for family in shown.families):
        return []
    told = [shown for shown in processes if shown.startup_terms]
    if not told:
        return []
    first = min(told, key=_rank)
    return guard.read("pool", lambda: collect_terms(first.maker, first.startup_terms))


def _rank(shown: EnginePage) -> tuple[int, str]:
    """Ranks are numbers, though a producer may name its workers freely."""
    rank = shown.worker or ""
    return (int(rank), "") if rank.isascii() and rank.isdigit() else (1 << 31, rank)
