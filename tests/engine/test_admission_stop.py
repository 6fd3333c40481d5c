"""A step says why it admitted no more, and which parts of prompts it computed."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvscope_engine.request import SequenceState
from kvscope_engine.step import Step
from kvscope_engine.step_plan import SampledToken, StepPlan
from kvscope_events.events import StepCompleted, StepScheduled
from kvscope_events.vocabulary import AdmissionStop
from tests.support.accounting import Accounting, ContentRunner


@dataclass
class Judged:
    """The expected content of a step's events, by a look at the engine while it is computed."""

    stop: AdmissionStop
    chunks: dict[int, int] = field(default_factory=dict)
    room: int = 0


class Judge(ContentRunner):
    """Looks at the engine between the scheduling of a step and its results."""

    def __init__(self) -> None:
        super().__init__(block_size=4)
        self.engine: Accounting
        self.judged: Judged
        self._preemptions = 0

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        self.judged = Judged(self._stop(plan))
        for row in plan.rows:
            if len(row.sequence.tokens) - row.start > 1:
                self.judged.chunks[row.sequence.sequence_id] = row.count
        computed = sum(row.count for row in plan.rows)
        self.judged.room = self.engine.config.max_num_batched_tokens - computed
        return super().execute(plan)

    def _stop(self, plan: StepPlan) -> AdmissionStop:
        engine, config = self.engine, self.engine.config
        preemptions = sum(sequence.num_preemptions for sequence in engine.sequences)
        preempted, self._preemptions = preemptions > self._preemptions, preemptions
        queue = [s for s in engine.live if s.state is SequenceState.WAITING and s.leader is None]
        if not queue:
            return "empty"
        rows = {id(row.sequence) for row in plan.rows}
        running = [s for s in engine.live if s.state is SequenceState.RUNNING or id(s) in rows]
        if len(running) >= config.max_num_seqs:
            return "sequences"
        if preempted:
            return "blocks"
        left = config.max_num_batched_tokens - sum(row.count for row in plan.rows)
        head = min(queue, key=lambda s: s.rank)
        found = engine.kv.find_prefix(head)
        if left > 0 and not engine.kv.can_admit(head, found):
            return "blocks"
        assert left <= 0 or not config.enable_chunked_prefill, "the head could have been admitted"
        return "tokens"


class Driven:
    def __init__(self, **options: Any) -> None:
        self.judge = runner = Judge()
        self.engine = runner.engine = Accounting(runner=runner, **options)
        self._step = Step(self.engine.scheduler, self.engine.pool, runner, self.engine.bus)

    def step(self) -> AdmissionStop | None:
        """One step, whose events are as the judge expects them."""
        self.engine.flush()
        seen = len(self.engine.events)
        assert self._step.run() is not None
        self.engine.flush()
        told = self.engine.events[seen:]
        (completed,) = [e for e in told if isinstance(e, StepCompleted)]
        scheduled = [e for e in told if isinstance(e, StepScheduled)]
        expected = self.judge.judged
        assert completed.admission_stop == expected.stop
        assert [dict(zip(e.sequences, e.tokens, strict=True)) for e in scheduled] == (
            [expected.chunks] if expected.chunks else []
        )
        assert all(event.room == expected.room for event in scheduled)
        assert sum(expected.chunks.values()) == completed.prefill_tokens
        assert completed.deferred == completed.deferred_by == []
        return completed.admission_stop


SCENARIOS: dict[str, tuple[dict[str, int | bool], list[tuple[int, int]], list[AdmissionStop]]] = {
    "all are admitted": ({}, [(6, 3)], ["empty"] * 3),
    "no slot is free, even while a prompt uses up the tokens": (
        {"max_num_seqs": 1, "max_num_batched_tokens": 8},
        [(12, 2), (4, 1)],
        ["sequences"] * 3 + ["empty"],
    ),
    "a long prompt uses up the tokens": (
        {"max_num_batched_tokens": 8},
        [(20, 1), (4, 1)],
        ["tokens"] * 2 + ["empty"],
    ),
    "without chunks a prompt is over the rest of the tokens": (
        {"num_blocks": 40, "max_num_batched_tokens": 40, "enable_chunked_prefill": False},
        [(15, 1), (15, 1), (15, 1)],
        ["tokens", "empty"],
    ),
    "the first in the queue does not fit, and none overtakes": (
        {"num_blocks": 10, "max_num_batched_tokens": 40},
        [(24, 3), (24, 1), (1, 1)],
        ["blocks"] * 3 + ["empty"],
    ),
    "a step that preempted": (
        {"num_blocks": 5, "max_model_len": 20, "max_num_batched_tokens": 40},
        [(8, 8), (11, 4)],
        ["empty", "blocks"],
    ),
}
"""Options, the tokens of prompts and outputs, and the reason of each step."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_reason_is_the_one_laid_in(name: str) -> None:
    options, calls, expected = SCENARIOS[name]
    driven = Driven(**options)
    for token, (prompt, output) in enumerate(calls):
        driven.engine.add([token] * prompt, output)
    assert [driven.step() for _ in expected] == expected


PROMPTS = st.lists(st.integers(0, 2), min_size=1, max_size=24)
CALLS = st.lists(st.tuples(PROMPTS, st.integers(1, 15), st.integers(1, 4)), max_size=4)


@settings(max_examples=60)
@given(
    arrivals=st.lists(CALLS, min_size=1, max_size=12),
    options=st.fixed_dictionaries(
        {
            "num_blocks": st.integers(10, 20),
            "max_num_seqs": st.integers(1, 5),
            "enable_prefix_caching": st.booleans(),
            "swap_blocks": st.sampled_from((0, 8)),
        }
    ),
    budget=st.integers(5, 48),
    chunked=st.booleans(),
)
def test_every_step_says_what_a_look_at_the_engine_says(
    arrivals: list[list[tuple[list[int], int, int]]],
    options: dict[str, Any],
    budget: int,
    chunked: bool,
) -> None:
    tokens = budget if chunked else max(40, budget)
    driven = Driven(**options, max_num_batched_tokens=tokens, enable_chunked_prefill=chunked)
    for calls in arrivals:
        for prompt, max_tokens, samples in calls:
            driven.engine.call([prompt], max_tokens, samples)
        if driven.engine.live:
            driven.step()
    while driven.engine.live:
        driven.step()


@pytest.mark.parametrize("budget", [1, 3])
def test_a_budget_that_was_cut_for_want_of_memory_is_what_others_wait_for(budget: int) -> None:
    driven = Driven(max_num_batched_tokens=16)
    driven.engine.add([1] * 8, 4)
    driven.engine.scheduler._budget.cut(2 * budget)
    driven.engine.add([2] * 8, 4)
    plan = driven.engine.scheduler.schedule()
    assert (plan.admission_stop, plan.num_tokens, plan.room) == ("tokens", budget, 0)
