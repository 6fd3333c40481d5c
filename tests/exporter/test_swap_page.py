"""The page of an engine that swaps: only what is possible, and few series more than of others."""

import msgspec
import pytest

from kvscope_events.bus import Subscription
from kvscope_events.events import (
    AllocationFailed,
    BlocksAllocated,
    BlocksReleased,
    BlocksSwapped,
    EngineEvent,
    PoolCreated,
    PoolSnapshot,
    RequestArrived,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    SequenceAdded,
)
from kvscope_events.producers import ENGINE_EVENTS, SWAP_EVENTS
from kvscope_exporter.catalogue import DEFAULT_COMPAT
from kvscope_exporter.targets.exporter import Exporter
from tests.exporter.page import families, hello, make_exporter, value
from tests.exporter.scenario import STEPS, play
from tests.exporter.stream import ended, finished, put, step
from tests.exporter.test_exposition import MAX_SERIES, most_series

SWAPPING = hello(tells=sorted(ENGINE_EVENTS | SWAP_EVENTS))
OF_SWAPPING = 11
"""Host blocks by state, and preemptions of another mode."""
STATES = ("waiting", "running", "swapped")
START: list[EngineEvent] = [
    PoolCreated(8, 4, 64, swap_blocks=6),
    RequestArrived(1, 9, 8),
    SequenceAdded(1, 1, 9, 8),
    BlocksAllocated(1, [1, 2, 3], "prefill"),
    RequestScheduled(1, 0, 0),
]
SWAPPED_OUT: list[EngineEvent] = [
    AllocationFailed(7, 1, 0),
    BlocksSwapped(1, "out", 3, 3, 5_000),
    BlocksReleased(1, [], [3, 2, 1], [], "swapped_out"),
    RequestPreempted(1, 1, "swap", "out_of_blocks", 9, 3, 100),
]


def swapping(*parts: list[EngineEvent]) -> tuple[Exporter, Subscription]:
    exporter, subscription = make_exporter(compat={"vllm", "vllm-legacy"})
    put(subscription, 0, 0, SWAPPING)
    for seq, events in enumerate(parts, start=1):
        put(subscription, seq, seq, *events)
    return exporter, subscription


def test_a_swapped_request_is_shown_apart_until_it_resumes() -> None:
    beat = step(waiting=1, swapped=1, requests_waiting=1, requests_swapped=1)
    exporter, subscription = swapping(START, [*SWAPPED_OUT, beat])
    states = {state: value(exporter, "kvscope_requests", state=state) for state in STATES}
    assert states == {"waiting": 0, "running": 0, "swapped": 1}
    assert value(exporter, "kvscope_sequences", state="swapped") == 1
    assert value(exporter, "vllm:num_requests_waiting") == 1, "to vLLM's readers it waits"
    assert value(exporter, "vllm:num_requests_swapped") == 1
    assert value(exporter, "vllm:cpu_cache_usage_perc") == 0.5
    assert value(exporter, "kvscope_kv_swap_blocks", state="used") == 3
    assert value(exporter, "kvscope_kv_swap_blocks", state="free") == 3
    resumed = RequestResumed(1, 1, 0, 4, 2_000_000_000, swapped_tokens=5)
    put(subscription, 3, 3, BlocksSwapped(1, "in", 2, 0, 4_000), resumed, step(running=1))
    states = {state: value(exporter, "kvscope_requests", state=state) for state in STATES}
    assert states == {"waiting": 0, "running": 1, "swapped": 0}
    kind = {"mode": "swap", "cause": "out_of_blocks"}
    bill = {
        what: value(exporter, f"kvscope_preemption_{what}_total", **kind)
        for what in ("discarded_tokens", "found_tokens", "stalled_seconds")
    }
    assert bill == {
        "discarded_tokens": 9,
        "found_tokens": 4,
        "stalled_seconds": 2,
    }


def test_an_abort_while_the_engine_idles_ends_what_is_swapped() -> None:
    beat = step(waiting=1, swapped=1, requests_waiting=1, requests_swapped=1)
    gone = [BlocksSwapped(1, "in", 0, 0), ended(1, reason="abort"), finished(1, reason="abort")]
    exporter, _ = swapping(START, [*SWAPPED_OUT, beat], gone)
    states = {state: value(exporter, "kvscope_requests", state=state) for state in STATES}
    assert states == {"waiting": 0, "running": 0, "swapped": 0}
    assert value(exporter, "kvscope_kv_swap_blocks", state="used") == 0


def test_after_a_gap_the_heartbeat_and_the_snapshot_say_what_is_swapped() -> None:
    exporter, subscription = swapping(START)
    snapshot = PoolSnapshot(8, 4, 64, 0, [0] * 8, [None] * 8, [], swap_blocks=6, swap_used=5)
    beat = step(waiting=3, swapped=2, requests_waiting=2, requests_swapped=1)
    put(subscription, 9, 9, SWAPPING, snapshot, beat)
    assert value(exporter, "kvscope_kv_swap_blocks", state="used") == 5
    assert value(exporter, "kvscope_requests", state="swapped") == 1
    assert value(exporter, "kvscope_requests", state="waiting") == 1
    assert value(exporter, "kvscope_sequences", state="swapped") == 2


def test_only_possible_pairs_of_mode_and_cause_have_series() -> None:
    exporter, _ = swapping(START)
    samples = families(exporter)["kvscope_preemptions"].samples
    pairs = {(s.labels["mode"], s.labels["cause"]) for s in samples}
    recompute = {("recompute", cause) for cause in ("out_of_blocks", "out_of_memory", "reset")}
    assert pairs == recompute | {("swap", "out_of_blocks")}


def test_an_engine_that_cannot_swap_has_none_of_it() -> None:
    exporter, subscription = make_exporter(compat=DEFAULT_COMPAT)
    put(subscription, 0, 0, hello(), PoolCreated(8, 4, 64), step())
    page, _ = exporter.render()
    lines = [line for line in page.decode().splitlines() if not line.startswith("#")]
    shown = [line.partition("{")[0] for line in lines if "swap" in line]
    of_the_machine = [name for name in shown if name.startswith("kvscope_host_")]
    assert shown == of_the_machine


def test_a_swap_space_adds_few_series_to_the_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    exporter, subscription = make_exporter(compat=DEFAULT_COMPAT)
    first, *rest = STEPS
    created = msgspec.structs.replace(first[0], swap_blocks=6)
    play(subscription, ([SWAPPING, created, *first[1:]], *rest))
    exporter.render()
    most = most_series(exporter)
    with capsys.disabled():
        print(f"\n{most} series of one engine that swaps and one GPU at most")
    assert most < MAX_SERIES + OF_SWAPPING
