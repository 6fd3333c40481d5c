"""Source, gaps, faults and threads: a page is always there, fresh, and honest."""

import logging
import threading
import time

import pytest

from kvscope_events.bus import EventBus, Subscription
from kvscope_events.events import (
    AllocationFailed,
    Batch,
    BlocksAllocated,
    EngineEvent,
    FirstToken,
    PagesEvicted,
    PoolCreated,
    PoolSnapshot,
    RequestArrived,
    RequestPreempted,
    SequenceAdded,
    StepCompleted,
)
from kvscope_events.producers import ENGINE_EVENTS, LOOKUP_EVENTS
from kvscope_exporter.catalogue import CATALOGUE, COMPAT_SETS
from kvscope_exporter.collect.families import Families
from kvscope_exporter.collect.pool import collect_churn
from kvscope_exporter.sources import pipeline as pipeline_module
from kvscope_exporter.sources.pipeline import CHUNK_BATCHES, InProcessSource, Pipeline
from kvscope_exporter.state import Churn, EventCounts
from kvscope_exporter.targets.exporter import Exporter, in_process
from kvscope_exporter.targets.target import Target
from tests.exporter.page import (
    FIXED_CLOCK,
    HELLO,
    NOW_NS,
    ModelPool,
    batch_of,
    families,
    hello,
    make_exporter,
    put,
    step,
    value,
)

POOL_FAMILIES = {
    "kvscope_kv_blocks",
    "kvscope_kv_capacity_blocks",
    "kvscope_kv_active_ratio",
    "kvscope_kv_resident_ratio",
    "kvscope_kv_ledger_imbalance_blocks",
    "kvscope_requests",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "vllm:cache_config_info",
    "vllm:num_requests_running",
}


def test_an_engine_that_never_ends_what_it_begins_takes_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipeline_module, "MAX_PENDING", 100)
    exporter, subscription = make_exporter(queue_batches=4096)
    put(subscription, 0, 0, PoolCreated(8, 16, 0), step())
    for number in range(2_000):
        events: list[EngineEvent] = [
            RequestArrived(number, 1, 1, trace_id="f" * 32),
            SequenceAdded(number, number, 1, 1),
            RequestPreempted(number, number, "recompute", "out_of_blocks", 0, 0, 0),
            FirstToken(number, 1),
        ]
        put(subscription, number + 1, 0, *events)
    assert value(exporter, "kvscope_requests", state="waiting") is None, "not known any more"
    (target,) = exporter.targets
    for fold in target.folds:
        assert fold.num_pending <= 100 + 6 * CHUNK_BATCHES
    assert "fold state: over 100 requests and sequences have begun and not ended" in caplog.text
    put(subscription, 2_001, 0, step())
    assert value(exporter, "kvscope_requests", state="waiting") == 0, "the engine says so"


def test_a_source_asks_for_a_snapshot_at_once_and_after_a_gap() -> None:
    subscription = Subscription(8)
    source = InProcessSource(subscription)
    assert subscription.snapshot_wanted
    assert not source.state_known
    subscription.snapshot_wanted = False
    put(subscription, 5, 1, step())
    assert source.take() is not None
    assert not source.state_known  # joined late
    put(subscription, 6, 2, PoolCreated(8, 4, 0))
    source.take()
    assert source.state_known
    put(subscription, 9, 3, step())
    taken = source.take()
    assert taken is not None
    assert (taken[1], source.gaps, source.batches_dropped) == (2, 1, 2)
    assert subscription.snapshot_wanted
    assert not source.state_known
    put(subscription, 10, 4, PoolSnapshot(8, 4, 0, 0, [0] * 8, [None] * 8, []))
    taken = source.take()
    assert taken is not None
    assert source.state_known
    assert taken[1] == 0
    assert source.last_message_ns == 4
    assert source.take() is None


def test_a_repeated_sequence_number_is_not_a_loss() -> None:
    subscription = Subscription(8)
    source = InProcessSource(subscription)
    for seq in (0, 1, 1, 2):
        put(subscription, seq, 0, PoolCreated(8, 4, 0))
        taken = source.take()
        assert taken is not None
        assert taken[1] == 0
    assert (source.gaps, source.batches_dropped) == (0, 0)
    put(subscription, 4, 0, step())
    source.take()
    assert (source.gaps, source.batches_dropped) == (1, 1)


def test_after_a_gap_the_gauges_of_the_state_are_absent_and_come_back_with_a_snapshot() -> None:
    exporter, subscription = make_exporter()
    begun = (PoolCreated(8, 4, 64), BlocksAllocated(0, [1], "prefill"), AllocationFailed(0, 9, 7))
    put(subscription, 0, 0, *begun)
    put(subscription, 1, 0, step(active_blocks=1, free_blocks=7, slots_filled=1))
    before = families(exporter)
    assert before.keys() >= POOL_FAMILIES
    put(subscription, 5, 0, BlocksAllocated(0, [2], "prefill"), AllocationFailed(0, 9, 6))
    lost = families(exporter)
    assert not POOL_FAMILIES & lost.keys()
    assert value(exporter, "kvscope_source_state_known") == 0
    assert value(exporter, "kvscope_event_gaps_total") == 1
    assert value(exporter, "kvscope_event_batches_dropped_total") == 3
    assert value(exporter, "kvscope_kv_allocation_failures_total") == 2
    assert value(exporter, "kvscope_prefix_cache_missed_blocks_total", cause="cold") is None
    hashes: list[bytes | None] = [None] * 8
    snapshot = PoolSnapshot(8, 4, 64, 0, [0, 1, 1, 0, 0, 0, 0, 0], hashes, [])
    put(subscription, 6, 0, step(), snapshot, step(active_blocks=2, free_blocks=6, slots_filled=2))
    assert families(exporter).keys() == before.keys()
    assert value(exporter, "kvscope_kv_blocks", state="active") == 2
    assert value(exporter, "kvscope_kv_ledger_imbalance_blocks") == 0
    assert value(exporter, "kvscope_source_state_known") == 1


def test_a_slow_subscriber_loses_batches_says_so_and_recovers_by_itself() -> None:
    bus = EventBus()
    exporter = in_process(bus.subscribe(queue_batches=4))
    pool = ModelPool(bus)
    bus.provide_snapshot(lambda: [HELLO, pool.snapshot()])
    pool.heartbeat()
    assert value(exporter, "kvscope_kv_blocks", state="free") == 7
    table = pool.allocate(0, 3)
    for _ in range(10):  # no drain: six of these ten batches are lost
        pool.heartbeat()
    assert value(exporter, "kvscope_kv_blocks", state="active") is None
    assert value(exporter, "kvscope_event_batches_dropped_total") == 6
    pool.heartbeat()  # brings the snapshot that was asked for
    assert value(exporter, "kvscope_kv_blocks", state="active") == 3
    pool.release(0, table)
    pool.heartbeat()
    assert value(exporter, "kvscope_kv_blocks", state="active") == 0
    assert value(exporter, "kvscope_kv_ledger_imbalance_blocks") == 0
    assert value(exporter, "kvscope_event_gaps_total") == 1


def test_a_late_joiner_knows_nothing_until_the_next_step_and_all_after_it() -> None:
    bus = EventBus()
    pool = ModelPool(bus)
    bus.provide_snapshot(lambda: [HELLO, pool.snapshot()])
    pool.allocate(0, 2)
    pool.heartbeat()
    exporter = in_process(bus.subscribe())
    assert not POOL_FAMILIES & families(exporter).keys()
    assert value(exporter, "kvscope_source_last_message_age_seconds") is None
    pool.heartbeat()
    assert value(exporter, "kvscope_kv_blocks", state="active") == 2


def test_a_fold_that_raises_takes_only_its_families_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, PoolCreated(8, 4, 64))
    whole = families(exporter).keys()
    put(subscription, 1, 0, BlocksAllocated(0, [1], "decode"), PagesEvicted(1, "unheard_of"))  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR):
        for seq in range(2, 5):
            put(subscription, seq, 0, step(active_blocks=1, free_blocks=7))
            after = families(exporter).keys()
    churn = collect_churn(Families({"model_name": "", "engine": ""}, FIXED_CLOCK), Churn(), HELLO)
    names = {family.name.removesuffix("_total") for family in churn}
    assert whole - after == whole & names != set()
    assert value(exporter, "kvscope_fold_errors_total") == 1
    assert value(exporter, "kvscope_kv_blocks", state="active") == 1
    assert len(caplog.records) == 1


def test_many_batches_fold_in_chunks_as_if_one_by_one() -> None:
    exporter, subscription = make_exporter(queue_batches=4 * CHUNK_BATCHES)
    for seq in range(2 * CHUNK_BATCHES + 3):
        put(subscription, seq, 0, RequestArrived(seq, 1, 1))
    assert value(exporter, "kvscope_events_total", type="RequestArrived") == 2 * CHUNK_BATCHES + 3


def test_a_drain_ends_although_the_engine_is_faster() -> None:
    class Faster(InProcessSource):
        """Every batch taken brings a further one, sent after the drain began."""

        def take(self) -> tuple[Batch, int] | None:
            taken = super().take()
            if taken is not None:
                put(subscription, taken[0].seq + 1, NOW_NS + 1, step())
            return taken

    subscription = Subscription(8)
    census = EventCounts()
    pipeline = Pipeline(Faster(subscription), lambda: [census], FIXED_CLOCK)
    put(subscription, 0, NOW_NS - 500_000_000, step())
    pipeline.drain()
    assert census.counts[StepCompleted] == 2
    assert pipeline.lag_seconds == 0.5


def test_the_thread_folds_without_a_scrape_and_ends_cleanly() -> None:
    before = set(threading.enumerate())
    bus = EventBus()
    exporter = in_process(bus.subscribe())
    bus.emit(HELLO)
    exporter.start()
    with pytest.raises(RuntimeError, match="started before"):
        exporter.start()
    bus.emit(step())
    bus.flush()
    deadline = time.monotonic() + 5
    pipeline = exporter.targets[0].pipeline
    while not pipeline.spent_seconds["census"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert pipeline.spent_seconds["census"] > 0
    assert value(exporter, "kvscope_source_up") == 1
    bus.emit(step())
    bus.flush()
    exporter.stop()
    assert "kvscope-fold" not in {thread.name for thread in {*threading.enumerate()} - before}
    assert value(exporter, "kvscope_events_total", type="StepCompleted") == 2
    assert value(exporter, "kvscope_source_up") == 0


def test_pages_and_steps_at_once_lose_nothing() -> None:
    bus = EventBus()
    exporter = in_process(bus.subscribe())
    exporter.start()
    num_steps = 400

    def engine() -> None:
        events: list[EngineEvent] = [HELLO, PoolCreated(8, 4, 0)]
        for number in range(num_steps):
            for event in (*events, step(emitted=[number % 3])):
                bus.emit(event)
            bus.flush()
            events = []

    thread = threading.Thread(target=engine)
    thread.start()
    for _ in range(10):
        page, _ = exporter.render()
        assert b"kvscope_build_info" in page
    thread.join()
    exporter.stop()
    assert value(exporter, "kvscope_events_total", type="StepCompleted") == num_steps
    assert value(exporter, "vllm:generation_tokens_total") == num_steps


def test_without_prefix_caching_its_families_are_absent() -> None:
    subscription = Subscription(8)
    tells = sorted(ENGINE_EVENTS - LOOKUP_EVENTS)
    put(subscription, 0, 0, hello(tells=tells, enable_prefix_caching=False))
    exporter = in_process(subscription, compat=COMPAT_SETS)
    prefix = {metric.family for metric in CATALOGUE if metric.group == "prefix"}
    assert not prefix & families(exporter).keys()


class Sessions:
    """A source that brings what the test puts, under the session that it names."""

    kind = "wire"
    endpoint = "ipc:///nowhere"
    up = state_known = True
    superseded = False
    last_message_ns = None
    batches_dropped = gaps = 0

    def __init__(self) -> None:
        self.queue: list[tuple[str, Batch]] = []
        self.session = ""
        self.decode_errors: dict[str, int] = {}

    def put(self, session: str, *events: EngineEvent) -> None:
        self.queue.append((session, batch_of(*events)))

    def take(self) -> tuple[Batch, int] | None:
        if not self.queue:
            return None
        self.session, batch = self.queue.pop(0)
        return batch, 0

    def wait(self, timeout: float) -> bool:
        return bool(self.queue)

    def close(self) -> None:
        self.queue.clear()


def test_another_session_begins_anew_and_takes_nothing_over() -> None:
    source = Sessions()
    exporter = Exporter([Target(source, compat=(), clock=FIXED_CLOCK)], clock=FIXED_CLOCK)  # type: ignore[arg-type]
    source.put("a", hello(model_name="old"), PoolCreated(8, 4, 64), step(decode_tokens=7))
    assert value(exporter, "kvscope_step_tokens_total", model_name="old", phase="decode") == 7
    source.put("b", hello(model_name="new"), PoolCreated(16, 4, 64), step(decode_tokens=2))
    assert value(exporter, "kvscope_step_tokens_total", model_name="new", phase="decode") == 2
    assert value(exporter, "kvscope_kv_capacity_blocks", model_name="new") == 16
    assert value(exporter, "kvscope_kv_capacity_blocks", model_name="old") is None


def test_a_fold_given_up_gets_another_chance_with_the_next_session() -> None:
    source = Sessions()
    exporter = Exporter([Target(source, compat=(), clock=FIXED_CLOCK)], clock=FIXED_CLOCK)  # type: ignore[arg-type]
    source.put("a", HELLO, PagesEvicted(1, "nonsense"))  # type: ignore[arg-type]
    assert value(exporter, "kvscope_kv_block_evictions_total") is None
    source.put("b", HELLO, PagesEvicted(1, "reset"))
    assert value(exporter, "kvscope_kv_block_evictions_total", cause="reset") == 1
    assert value(exporter, "kvscope_fold_errors_total") == 1
