"""Facts about a server, of which a test changes some, and the proposals that follow from them."""

from typing import Any

from hypothesis import strategies as st

from kvscope_exporter.adviser.facts import Facts, HitCurve, Point, Room, Sizing
from kvscope_exporter.adviser.proposal import Proposal
from kvscope_exporter.adviser.rank import advise
from kvscope_exporter.state.recent import NEED_BINS, NEED_STEPS, Slot

GIB = 2**30
SECOND = 10**9


def slot(**changes: Any) -> Slot:
    """Five minutes of an engine that is busy half of the time and well within its pool."""
    fields: dict[str, Any] = {
        "steps": 30_000,
        "busy_ns": 150 * SECOND,
        "prefill_tokens": 600_000,
        "running_ns": 150 * SECOND * 8,
        "active_ns": 150 * SECOND * 400,
        "most_active": 500,
        "largest_step": 2048,
        "largest_steps": 50,
        "finished": 600,
        "finished_tokens": 600 * 1200,
        "need_ns": needed({0.5: 150 * SECOND}),
    }
    return Slot(0, **{**fields, **changes})


def needed(pools: dict[float, int]) -> list[int]:
    """Times at which this many pools were wanted."""
    bins = [0] * NEED_BINS
    for need, time_ns in pools.items():
        bins[int(need * NEED_STEPS)] += time_ns
    return bins


def facts(**changes: Any) -> Facts:
    """An engine with 1,000 blocks of 16 tokens on a card with room for 1,000 more; nothing is
    wrong with it."""
    fields: dict[str, Any] = {
        "usable_blocks": 1000,
        "block_size": 16,
        "bytes_per_block": 2 << 20,
        "rooms": [room()],
        "curve": curve(0.6, 0.6),
        "seconds": 300.0,
        "load": slot(),
        "largest_step": 2048,
        "longest_blocks": 256,
        "max_num_seqs": 16,
        "step_budget": 2048,
    }
    return Facts(**{**fields, **changes})


def room(**changes: Any) -> Room:
    fields: dict[str, Any] = {
        "name": "GPU 0",
        "total_bytes": 24 * GIB,
        "free_bytes": 4 * GIB,
        "largest_step_bytes": GIB,
        "bytes_per_block": 2 << 20,
        "own_bytes_per_block": changes.get("bytes_per_block", 2 << 20),
        "is_profiled": True,
    }
    return Room(**{**fields, **changes})


def curve(now: float, most: float, *, least: float | None = None, seconds: float = 300) -> HitCurve:
    """Hit ratios at 1,000 blocks and at 4,000, and in between on a line; `least` at 62."""
    queried = 40_000
    ratios = [(62, now if least is None else least), (1000, now), (4000, most)]
    points = [Point(capacity, round(ratio * queried)) for capacity, ratio in ratios]
    return HitCurve(points=points, queried_blocks=queried, seconds=seconds, error_ratio=0.0)


def only(given: Facts) -> Proposal:
    """The first proposal."""
    return advise(given).proposals[0]


rooms = st.builds(
    room,
    total_bytes=st.integers(GIB, 80 * GIB),
    free_bytes=st.integers(0, 40 * GIB),
    largest_step_bytes=st.integers(0, 10 * GIB),
    bytes_per_block=st.integers(1, 8 << 20),
)


@st.composite
def curves(draw: st.DrawFn) -> HitCurve:
    steps = draw(st.lists(st.integers(0, 5000), min_size=3, max_size=6))
    capacities = [250, 500, 1000, 1500, 2000, 4000]
    hits = 0
    points = []
    for capacity, step in zip(capacities, steps, strict=False):
        hits += step
        points.append(Point(capacity, hits))
    return HitCurve(
        points=points,
        queried_blocks=hits + draw(st.integers(0, 9000)),
        seconds=draw(st.floats(1, 300)),
        error_ratio=draw(st.none() | st.floats(0, 0.2)),
    )


@st.composite
def loads(draw: st.DrawFn) -> Slot:
    need = draw(st.dictionaries(st.floats(0, 2), st.integers(0, 100 * SECOND), max_size=5))
    busy_ns = sum(need.values())
    return slot(
        busy_ns=busy_ns,
        need_ns=needed(need),
        running_ns=busy_ns * draw(st.integers(1, 64)),
        waiting_ns=busy_ns * draw(st.integers(0, 400)),
        active_ns=busy_ns * draw(st.integers(1, 1000)),
        unfilled_ns=draw(st.integers(0, 1000 * busy_ns)),
        out_of_memory=draw(st.integers(0, 3)),
        largest_failure=draw(st.integers(0, 4096)),
        largest_step=draw(st.integers(1, 4096)),
        preemptions=draw(st.dictionaries(st.just("out_of_blocks"), st.integers(0, 99))),
        recomputed_tokens=draw(
            st.dictionaries(
                st.sampled_from(["out_of_blocks", "out_of_memory"]), st.integers(0, 10**6)
            )
        ),
    )


any_facts = st.builds(
    facts,
    rooms=st.lists(rooms, max_size=3),
    curve=st.none() | curves(),
    load=st.none() | loads(),
    seconds=st.floats(0, 300),
    block_size=st.sampled_from([1, 16, 64]),
    max_num_seqs=st.none() | st.integers(1, 64),
    waiting_for_sequences=st.floats(0, 100),
    waiting_for_tokens=st.floats(0, 100),
    held_up=st.floats(0, 1),
    step_budget=st.none() | st.integers(1, 1 << 17),
    step_fit=st.none() | st.tuples(st.integers(0, 10**9), st.integers(0, 10**7)),
    engines=st.integers(1, 4),
    pool_option=st.sampled_from(["num_gpu_blocks_override", "kv_cache_memory_bytes"]),
) | st.builds(
    facts,
    rooms=st.lists(rooms, max_size=2),
    curve=curves(),
    load=loads(),
    pool_option=st.just("gpu_memory_utilization"),
    sizing=st.builds(
        Sizing,
        total_bytes=st.just(24 * GIB),
        utilization=st.integers(20, 99).map(lambda hundredths: hundredths / 100),
        in_use_at_start_bytes=st.integers(0, 20 * GIB),
    ),
)
