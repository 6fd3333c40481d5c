"""Committed blocks, against an engine's own requests, whatever is preempted or aborted."""

from collections import Counter

from kvscope_events.events import BlockCopied, RequestPreempted
from kvscope_exporter.state import Exhaustion
from tests.exporter.stream import batch_of, step
from tests.support.accounting import Accounting


def test_samples_that_share_a_block_are_committed_to_their_copies_of_it() -> None:
    engine = Accounting(num_blocks=40)
    fold = Exhaustion()
    engine.call([[1] * 10], 10, n=4)
    seen = set()
    active = 0
    while engine.live:
        before = len(engine.events)
        engine.step()
        heartbeat = step(active_blocks=engine.pool.num_active, running=engine.scheduler.num_running)
        fold.on_batch(batch_of(*engine.events[before:], heartbeat))
        seen.add((fold.committed_blocks, len(engine.live)))
        active = max(active, engine.pool.num_active)
    assert active == 2 + 4 * 3, "the prompt's full blocks once, and three of each sample's own"
    assert seen == {(active, 4), (0, 0)}, "that is committed from the fork to the end"


def test_committed_blocks_are_right_while_samples_fork_and_are_preempted_and_aborted() -> None:
    engine = Accounting(num_blocks=14, max_num_seqs=6, max_num_batched_tokens=20)
    fold = Exhaustion()
    for number in range(6):
        engine.call([[number % 2] * (6 + number)], 15, n=1 + number % 4)
    steps = 0
    while engine.live:
        before = len(engine.events)
        if steps % 5 == 4:
            engine.scheduler.finish(engine.live[-1], "abort")
        engine.step()
        steps += 1
        running = engine.scheduler.running
        heartbeat = step(active_blocks=engine.pool.num_active, running=len(running))
        fold.on_batch(batch_of(*engine.events[before:], heartbeat))
        most = [-(-(r.prompt_length + r.sampling.max_tokens - 1) // 4) for r in running]
        owed = sum(m - len(r.block_table) for m, r in zip(most, running, strict=True))
        shared = Counter(r.block_table[-1] for r in running if r.num_computed_tokens % 4)
        assert fold.committed_blocks == engine.pool.num_active + owed + shared.total() - len(shared)
    assert {type(e) for e in engine.events} >= {BlockCopied, RequestPreempted}
    assert fold.committed_blocks == 0


def test_after_a_gap_nothing_is_known_until_the_requests_of_before_have_ended() -> None:
    engine = Accounting(num_blocks=40, max_num_batched_tokens=40)
    fold = Exhaustion()
    engine.add([1] * 8, 10)
    engine.step()
    fold.on_batch(batch_of(*engine.events, step(active_blocks=engine.pool.num_active, running=1)))
    assert fold.committed_blocks is not None
    fold.on_gap()
    engine.step()
    fold.on_batch(batch_of(step(active_blocks=engine.pool.num_active, running=1)))
    assert fold.committed_blocks is None
    engine.run()
    fold.on_batch(batch_of(step()))
    assert fold.committed_blocks == 0


def test_when_all_clients_have_gone_nothing_is_committed_though_no_step_follows() -> None:
    engine = Accounting(num_blocks=10, max_num_batched_tokens=40)
    fold = Exhaustion()
    requests = [engine.add([number] * 16, 10) for number in range(2)]
    while engine.pool.num_available:
        engine.step()
    assert engine.scheduler.num_running == 2
    fold.on_batch(batch_of(*engine.events, step(active_blocks=engine.pool.num_active, running=2)))
    assert fold.seconds_to_exhaustion == 0.0
    before = len(engine.events)
    for request in requests:
        engine.scheduler.finish(request, "abort")
    engine.flush()
    fold.on_batch(batch_of(*engine.events[before:], time_ns=10**9))
    assert fold.committed_blocks == 0
    assert fold.seconds_to_exhaustion is None
