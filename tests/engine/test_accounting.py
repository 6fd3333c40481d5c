"""Every block is accounted for after every step, whatever requests come, go and are preempted."""

from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvscope_engine.request import SequenceState
from kvscope_engine.swap.chooser import Chooser
from kvscope_events.events import (
    BlocksAllocated,
    BlocksReleased,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
)
from kvscope_events.vocabulary import SwapDirection
from tests.support.accounting import VOCABULARY, Accounting, continuation

TOKENS = st.integers(0, VOCABULARY - 1)
STEMS = ([1] * 8, [1, 2, 3, 4] * 4, [5] * 13)
"""Prompts begin with one of these, so that they share prefixes."""
PROMPTS = st.builds(
    lambda stem, keep, tail: (stem[:keep] + tail or [0])[:24],
    st.sampled_from(STEMS),
    st.integers(0, 16),
    st.lists(TOKENS, max_size=8),
)
ARRIVAL = st.tuples(PROMPTS, st.integers(1, 15), st.integers(0, 2))


class SteadyChooser(Chooser):
    """Out and in take two thirds of computing a block: whether it pays depends on the victim alone,
    not on the time that the test takes."""

    def __init__(self) -> None:
        super().__init__(block_size=4)
        for direction in get_args(SwapDirection):
            super().copied(direction, 1, 1_000)
        self.computed(4, 3_000)

    def copied(self, direction: SwapDirection, blocks: int, duration_ns: int) -> None:
        """Ignores the real duration."""


class EngineMachine(RuleBasedStateMachine):
    """Requests arrive, step, are aborted; the pool is small enough to preempt all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Accounting()

    @initialize(
        num_blocks=st.integers(10, 14),
        chunked=st.booleans(),
        caching=st.booleans(),
        priority=st.booleans(),
        reserved=st.integers(0, 1),
        budget=st.integers(4, 40),
        swap_blocks=st.sampled_from((0, 3, 8, 40)),
        auto=st.booleans(),
        first=st.lists(ARRIVAL, min_size=3, max_size=6),
    )
    def build(
        self,
        num_blocks: int,
        chunked: bool,
        caching: bool,
        priority: bool,
        reserved: int,
        budget: int,
        swap_blocks: int,
        auto: bool,
        first: list[tuple[list[int], int, int]],
    ) -> None:
        self.engine = Accounting(
            num_blocks=num_blocks + reserved,
            enable_chunked_prefill=chunked,
            enable_prefix_caching=caching,
            policy="priority" if priority else "fcfs",
            reserved=reserved,
            max_num_batched_tokens=budget if chunked else max(budget, 40),
            swap_blocks=swap_blocks,
            chooser=SteadyChooser() if auto else None,
        )
        self.engine.flush()
        self.arrive(first)

    @rule(arrivals=st.lists(ARRIVAL, min_size=1, max_size=4))
    def arrive(self, arrivals: list[tuple[list[int], int, int]]) -> None:
        for prompt, max_tokens, priority in arrivals:
            self.engine.add(prompt, max_tokens, priority)

    @rule(
        prompts=st.lists(PROMPTS, min_size=1, max_size=2),
        max_tokens=st.integers(1, 15),
        n=st.integers(1, 5),
        priority=st.integers(0, 2),
    )
    def call(self, prompts: list[list[int]], max_tokens: int, n: int, priority: int) -> None:
        self.engine.call(prompts, max_tokens, n, priority)

    @rule(steps=st.integers(1, 12))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            if self.engine.live:
                assert self.engine.step() > 0, "work, but nothing was scheduled"
                self.engine.check()

    @rule(choice=st.integers(0, 100))
    def abort(self, choice: int) -> None:
        live = self.engine.live
        if live:
            self.engine.scheduler.finish(live[choice % len(live)], "abort")

    @rule(choice=st.integers(0, 100))
    def abort_a_call(self, choice: int) -> None:
        live = self.engine.scheduler.requests.requests
        if live:
            self.engine.scheduler.finish_request(live[choice % len(live)], "abort")

    @rule()
    def run_out_of_memory(self) -> None:
        """A step that was scheduled and failed: nothing of it was computed."""
        plan = self.engine.scheduler.schedule()
        if plan.rows and self.engine.scheduler.shrink(plan) is None:
            for row in plan.rows:
                self.engine.scheduler.finish(row.sequence, "error")

    @rule()
    def reset(self) -> None:
        self.engine.pool.reset()

    @invariant()
    def accounted(self) -> None:
        self.engine.flush()
        self.engine.check()

    @invariant()
    def outputs_are_right(self) -> None:
        for sequence in self.engine.sequences:
            output = sequence.tokens[sequence.prompt_length :]
            assert output == continuation(sequence.prompt, len(output), sequence.sampling.seed)

    def teardown(self) -> None:
        self.engine.run()
        assert self.engine.pool.num_active == 0
        assert self.engine.swap is None or self.engine.swap.host.num_used == 0
        for name in sorted({type(e).__name__ for e in self.engine.events}):
            event(name)
        discarded = sum(
            e.discarded_tokens for e in self.engine.events if isinstance(e, RequestPreempted)
        )
        recovered = sum(
            e.recompute_tokens + e.cached_tokens + e.swapped_tokens
            for e in self.engine.events
            if isinstance(e, RequestResumed)
        )
        cut_short = any(s.finish_reason in ("abort", "error") for s in self.engine.sequences)
        assert cut_short or discarded == recovered


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow],
)


def loaded_engine(**settings: Any) -> Accounting:
    """Several requests under way, some sharing their prefix."""
    engine = Accounting(num_blocks=16, **settings)
    engine.add([1, 2, 3, 4] * 4, 6)
    for _ in range(3):
        engine.step()
    for tail in ([5], [6, 6], [2, 2, 2]):
        engine.add([1, 2, 3, 4] * 3 + tail, 9)
    for _ in range(2):
        engine.step()
    engine.check()
    assert max(engine.pool.snapshot().ref_counts) > 1, "nothing is shared: the plants would be weak"
    return engine


def test_a_planted_leak_is_caught() -> None:
    engine = loaded_engine()
    engine.scheduler.running[0].block_table.pop()  # forgotten: it will never be released
    with pytest.raises(AssertionError, match="number of owners"):
        engine.check()


def test_a_planted_leak_is_caught_after_the_request_ended() -> None:
    engine = loaded_engine()
    victim = engine.scheduler.running[0]
    victim.block_table.pop()
    engine.scheduler.finish(victim, "abort")
    engine.flush()
    with pytest.raises(AssertionError, match="number of owners"):
        engine.check()


def test_a_planted_double_free_of_a_shared_block_is_caught() -> None:
    engine = loaded_engine()
    counts = engine.pool.snapshot().ref_counts
    shared = next(block for block, count in enumerate(counts) if count > 1)
    engine.pool.release(0, [shared], "finished")
    engine.flush()
    with pytest.raises(AssertionError, match="number of owners"):
        engine.check()


def test_a_planted_double_free_of_a_free_block_stops_the_pool() -> None:
    engine = loaded_engine()
    sequence = engine.scheduler.running[-1]
    table = list(sequence.block_table)
    engine.scheduler.finish(sequence, "abort")
    with pytest.raises(AssertionError, match="double free"):
        engine.pool.release(sequence.sequence_id, table[-1:], "finished")


@pytest.mark.parametrize("lost", [BlocksAllocated, BlocksReleased])
def test_a_planted_lost_event_is_caught(lost: type) -> None:
    engine = loaded_engine()
    apply = engine.ledger.handlers
    handler, seen = apply[lost], []

    def lose_the_first(event: Any) -> None:
        if seen:
            handler(event)
        seen.append(event)

    apply[lost] = lose_the_first
    for _ in range(20):
        if engine.live:
            engine.step()
    assert seen, "no such event: nothing was planted"
    with pytest.raises(AssertionError, match=r"events contradict|not the pool's state"):
        engine.check()


def test_output_is_the_same_however_often_a_request_is_preempted() -> None:
    engine = Accounting(num_blocks=10, max_num_seqs=6, max_num_batched_tokens=40)
    for first in range(6):
        engine.add([first] * 8, 20)
    engine.run()
    assert sum(s.num_preemptions for s in engine.sequences) > 5
    for sequence in engine.sequences:
        assert sequence.tokens[sequence.prompt_length :] == continuation(sequence.prompt, 20)
        assert sequence.state is SequenceState.FINISHED
    finished = [e for e in engine.events if isinstance(e, RequestFinished)]
    assert [e.reason for e in finished] == ["length"] * 6
