"""Gathers the facts about one engine from its folds and its machine."""

import math
import re
from collections.abc import Iterable, Sequence
from itertools import accumulate

from kvscope_events.events import Hello
from kvscope_exporter.adviser.facts import Facts, HitCurve, Point, Room, Sizing
from kvscope_exporter.adviser.flags import HOST, SERVERS
from kvscope_exporter.adviser.proposal import Option
from kvscope_exporter.answers.question import ProcessMemory, QueryContext, UnknownError
from kvscope_exporter.collect.engine_memory import EngineMemory
from kvscope_exporter.machine.gpu import headroom
from kvscope_exporter.machine.host_memory import sum_processes
from kvscope_exporter.state import Cache, Folds, Ledger, LoadWindow, Preemption, Tiers, TimeLedger
from kvscope_exporter.state.cache import WhatIf
from kvscope_exporter.state.capacity import is_plain, longest_sequences
from kvscope_exporter.state.recent import NUM_SLOTS, SLOT_NS, limit_of
from kvscope_exporter.state.simulation import Shadows
from kvscope_exporter.state.time_parts import PARTS
from kvscope_exporter.state.timeline import Timeline
from kvscope_exporter.state.victim import Victim

_WATERMARK_SINCE = (0, 32)
"""The oldest vLLM in which it was tried."""


def gather(asked: QueryContext) -> Facts:
    """Raises UnknownError for a server with other options, and while its pool is not known."""
    if asked.hello.server not in SERVERS:
        raise UnknownError(f"the options of a {asked.hello.server} are not known here")
    hello, ledger, recent = asked.hello, asked.folds[Ledger], asked.folds[LoadWindow]
    if not ledger.known or not ledger.num_usable:
        raise UnknownError("the pool has not been created yet, or its state is not known")
    own = [p for p in asked.processes if _labels(p) == (hello.model_name, hello.engine)]
    sizing = _sizing(asked, own)
    option, is_set = _pool_option(hello, ledger, sizing)
    fitting = longest_sequences(ledger, hello.max_model_len)
    seconds, load = recent.window()
    waiting, held_up = _waits(asked.timeline)
    step_time, settings = asked.folds[TimeLedger].step_time, hello.settings
    budget = settings.get("max_num_batched_tokens") or settings.get("chunked_prefill_size")
    return Facts(
        usable_blocks=ledger.num_usable,
        reserved_blocks=ledger.reserved,
        block_size=ledger.block_size,
        is_plain=is_plain(ledger.groups),
        server=hello.server,
        caches_prefixes=hello.enable_prefix_caching is not False,
        knows_unfilled="PoolCounted" not in hello.tells,
        bytes_per_block=ledger.bytes_per_block or None,
        engines=_num_engines(asked),
        sizing=sizing,
        rooms=_rooms(asked, own),
        uses_device=_uses_device(asked, own),
        pool_option=option,
        is_option_set=is_set,
        longest_blocks=math.ceil(ledger.num_usable / fitting) if fitting else None,
        curve=_curve(asked, recent.last_step_ns, seconds),
        seconds=seconds,
        load=load,
        largest_step=recent.largest_step or None,
        max_num_seqs=limit_of(hello),
        step_budget=int(budget) if budget and budget > 0 else None,
        step_fit=step_time.fit if step_time.is_fitted else None,
        waiting_for_sequences=waiting[PARTS.index("wait_sequences")],
        waiting_for_tokens=waiting[PARTS.index("wait_tokens")],
        held_up=held_up / load.running_ns if load.running_ns else 0.0,
        conservativeness=hello.settings.get("schedule_conservativeness"),
        can_swap=hello.server == "kvscope",
        can_offload=_can_offload(asked, own),
        has_watermark=has_watermark(hello),
        retention=ledger.retention,
        alignment=ledger.alignment,
        tier_blocks=_tier_blocks(asked),
        swap_blocks=ledger.swap_blocks,
        host=_host(asked, own),
        lost_blocks=most_lost_at_once(asked.folds[Preemption].history),
    )


def whatif_of(folds: Folds) -> WhatIf | Shadows:
    """The hits of other sizes: computed for one kind of layers, simulated for several."""
    whatif = folds[Cache].whatif
    return whatif if is_plain(folds[Ledger].groups) else folds[Shadows]


def _waits(timeline: Timeline) -> tuple[list[float], int]:
    """Over the last minutes: the mean number of requests by what they wait for, in the order of
    PARTS, and the time by which prompts made tokens late, in nanoseconds."""
    periods = list(timeline)
    if not periods:
        return [0.0] * len(PARTS), 0
    last = periods[-1]
    since_ns = last.end_ns - NUM_SLOTS * SLOT_NS
    first = next(p for p in periods if p.session == last.session and p.end_ns >= since_ns)
    now, before = last.figures, first.figures
    length = max(1, last.end_ns - first.end_ns)
    late = PARTS.index("decode_prefills")
    stood = zip(now.standing, before.standing, strict=True)
    return [(x - y) / length for x, y in stood], now.late_tokens[late] - before.late_tokens[late]


def most_lost_at_once(victims: Iterable[Victim]) -> int:
    """Most blocks lost at once by sequences that waited after the pool was full."""
    changes = []
    for victim in victims:
        event = victim.preempted
        if event.cause == "out_of_blocks" and event.mode == "recompute" and victim.state != "lost":
            changes.append((victim.time_ns, event.blocks))
            if victim.stalled_ns is not None:
                changes.append((victim.time_ns + victim.stalled_ns, -event.blocks))
    changes.sort()  # releases come first
    return max(accumulate(blocks for _, blocks in changes), default=0)


def _tier_blocks(asked: QueryContext) -> int:
    tier = asked.folds[Tiers].capacities.get("host")
    return 0 if tier is None else tier.num_blocks


def _can_offload(asked: QueryContext, own: Sequence[ProcessMemory]) -> bool:
    if asked.hello.server == "kvscope":
        return False
    if _tier_blocks(asked):
        return True
    return not asked.hello.keeps_blocks and _uses_device(asked, own)


def has_watermark(hello: Hello) -> bool:
    """Whether it is a vLLM that is known to have one; its version may be of any form."""
    numbers = re.match(r"(\d+)\.(\d+)\.", hello.server_version)
    if hello.server != "vllm" or numbers is None:
        return False
    return (int(numbers[1]), int(numbers[2])) >= _WATERMARK_SINCE


def _num_engines(asked: QueryContext) -> int:
    """Number of this server's engines."""
    return len({_labels(process) for process in asked.processes}) or 1


def _curve(asked: QueryContext, end_ns: int | None, seconds: float) -> HitCurve | None:
    """seconds: since the first step; a pool that waits for one has no look-ups to be rated by."""
    whatif = whatif_of(asked.folds)
    curve = whatif.curve(SLOT_NS * NUM_SLOTS / 1e9, end_ns)
    if curve is None or not curve.seconds or not seconds:
        return None
    doubtful = [point.capacity_blocks for point in curve.points if point.is_lower_bound]
    first = min((capacity for capacity in doubtful if capacity is not None), default=None)
    return HitCurve(
        exact_up_to_blocks=None if first is None else first - 1,
        points=[
            Point(point.capacity_blocks, point.hit_blocks, point.loaded_blocks)
            for point in curve.points
            if point.capacity_blocks is not None
        ],
        queried_blocks=curve.queried_blocks,
        seconds=min(curve.seconds, seconds),
        error_ratio=whatif.error_blocks / whatif.queried_blocks if whatif.queried_blocks else None,
        retaining_hit_blocks=curve.retaining_hit_blocks,
    )


def _labels(process: ProcessMemory) -> tuple[str, str]:
    return process.hello.model_name, process.hello.engine


def _pool_option(hello: Hello, ledger: Ledger, sizing: Sizing | None) -> tuple[Option, bool]:
    """The option to propose, and whether it gave the present size."""
    told = hello.pool_sized_by
    if told == "num_gpu_blocks_override":
        return "num_gpu_blocks_override", True
    if hello.server == "sglang":
        is_share = told == "mem_fraction_static" and sizing is not None
        return ("mem_fraction_static", True) if is_share else _of_tokens(told)
    if told == "kv_cache_memory_bytes" and ledger.bytes_per_block:
        return "kv_cache_memory_bytes", True
    if sizing is not None:
        return "gpu_memory_utilization", True
    # For a share with unknown terms, or a default, propose bytes, unless no tensors back the pool.
    return ("kv_cache_memory_bytes" if ledger.bytes_per_block else "num_gpu_blocks_override"), False


def _of_tokens(told: str | None) -> tuple[Option, bool]:
    return "max_total_tokens", told == "max_total_tokens"


def _sizing(asked: QueryContext, own: Sequence[ProcessMemory]) -> Sizing | None:
    share = asked.hello.gpu_memory_utilization
    before = asked.hello.settings.get("pre_model_load_memory")
    if share is not None and before:  # of what was free then, SGLang takes this share
        return Sizing(total_bytes=int(before * 2**30), utilization=share, in_use_at_start_bytes=0)
    told = [asked.folds[Ledger].memory_terms, *(process.startup_terms for process in own)]
    terms = [of_one for of_one in told if "total" in of_one]
    if share is None or not terms:
        return None
    return Sizing(
        total_bytes=min(of_one["total"] for of_one in terms),
        utilization=share,
        in_use_at_start_bytes=max(of_one.get("in_use_at_start", 0) for of_one in terms),
    )


def _uses_device(asked: QueryContext, own: Sequence[ProcessMemory]) -> bool:
    """According to its processes; if none reports anything, any pool with tensors is assumed to."""
    if asked.hello.pool_device is not None:
        return asked.hello.pool_device != "cpu"
    places = {uuid for process in own for uuid in process.samples}
    return bool(places - {None}) if places else bool(asked.folds[Ledger].bytes_per_block)


def _rooms(asked: QueryContext, own: Sequence[ProcessMemory]) -> tuple[Room, ...]:
    """Rooms of every device that the engine uses, or of its host; empty if any is unknown."""
    uuids = {uuid for process in own for uuid in process.samples if uuid is not None}
    if uuids:
        return _device_rooms(asked, uuids, own)
    is_on_host = asked.hello.pool_device == "cpu" or any(None in p.samples for p in own)
    host = _host(asked, own) if is_on_host else None
    return () if host is None else (host,)


def _device_rooms(
    asked: QueryContext, uuids: set[str], own: Sequence[ProcessMemory]
) -> tuple[Room, ...]:
    gpu, now_ns = asked.machine.gpu, asked.clock.now().monotonic_ns
    sample = None if gpu is None else gpu.read().sample
    if sample is None:
        return ()
    everyone = EngineMemory(
        [process.samples for process in asked.processes],
        [process.activation_peaks for process in asked.processes],
    )
    fresh, num_blocks = everyone.fresh(now_ns), asked.folds[Ledger].num_blocks
    at_start = [process.startup_terms.get("activation_peak") for process in own]
    at_start.append(asked.folds[Ledger].memory_terms.get("activation_peak"))
    profiled = max((peak for peak in at_start if peak is not None), default=None)
    rooms = []
    for device in sample.devices:
        uuid, memory = device.identity.uuid, device.memory
        # Both can be right: a session may have had only small steps so far.
        peaks = [p for p in (everyone.activation_peaks.get(uuid), profiled) if p is not None]
        if uuid not in uuids or memory is None or uuid not in fresh:
            continue
        free = headroom(memory, fresh[uuid])
        if free is not None and peaks:
            own_bytes = max(_pool_bytes(process, uuid) for process in own)
            rooms.append(
                Room(
                    name=f"GPU {device.identity.index}",
                    total_bytes=memory.total,
                    free_bytes=free,
                    largest_step_bytes=max(peaks),
                    # An option applies to all engines of a server, including those on one device.
                    bytes_per_block=-(-fresh[uuid].kv_pool_bytes // num_blocks),
                    own_bytes_per_block=-(-own_bytes // num_blocks),
                    is_profiled=profiled is not None,
                )
            )
    return tuple(rooms) if len(rooms) == len(uuids) else ()


def _host(asked: QueryContext, own: Sequence[ProcessMemory]) -> Room | None:
    """Memory of the machine or its tightest control group; None: not known."""
    machine, ledger = asked.machine, asked.folds[Ledger]
    if not own or not all(process.is_here for process in own) or not ledger.bytes_per_block:
        return None
    whole = machine.available()
    group = sum_processes([machine.host(process.hello.pid) for process in own])
    if whole is None or group.resident is None:
        return None
    room = group.room
    free = whole.available if room is None else min(room, whole.available)
    # The kernel hands out memory at first write: what the pool has not yet touched counts as taken.
    pool_bytes = 0 if _uses_device(asked, own) else ledger.num_blocks * ledger.bytes_per_block
    return Room(
        name=HOST,
        total_bytes=whole.total if group.limit is None else min(group.limit, whole.total),
        free_bytes=free - max(0, pool_bytes - group.resident),
        largest_step_bytes=0,
        bytes_per_block=ledger.bytes_per_block * _num_engines(asked),
        own_bytes_per_block=ledger.bytes_per_block,
    )


def _pool_bytes(process: ProcessMemory, uuid: str) -> int:
    """Bytes on a device; 0: the process does not use it."""
    samples = process.samples.get(uuid)
    return samples[-1].event.kv_pool_bytes if samples else 0
