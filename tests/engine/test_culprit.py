"""A request that raises ends alone; a device or a model that is broken ends the engine."""

import logging
import weakref
from random import Random

import pytest

from kvscope_engine.out_of_memory import DeviceOutOfMemoryError
from kvscope_engine.step import Step, execute
from kvscope_engine.step_plan import SampledToken, ScheduledSequence, StepPlan
from kvscope_events.events import RequestFinished, StepCompleted
from kvscope_events.throttle import ThrottledLog
from tests.support.accounting import Accounting, ContentRunner, continuation
from tests.support.faults import FaultyRunner, InjectedError

CULPRIT = 6
"""Prompts that begin with this token raise."""


def is_culprit(row: ScheduledSequence) -> bool:
    return row.sequence.tokens[0] == CULPRIT


@pytest.fixture(autouse=True)
def _fresh_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a minute is once for all tests."""
    monkeypatch.setattr(
        "kvscope_engine.step._log", ThrottledLog(logging.getLogger("kvscope_engine.step"))
    )


class Stepped(Accounting):
    """An engine whose steps are whole ones, over a runner with faults."""

    def __init__(self, faulty: FaultyRunner, **settings: int) -> None:
        super().__init__(**settings)
        self.faulty = faulty
        self.whole = Step(self.scheduler, self.pool, faulty, self.bus)
        self.steps = 0

    def run(self) -> None:
        while self.live:
            assert self.whole.run() is not None
            self.steps += 1
            self.flush()
            self.check()


def stepped(*, after: bool = False, out_of_memory: float = 0.0, **settings: int) -> Stepped:
    runner = FaultyRunner(ContentRunner(4), is_culprit, after=after, out_of_memory=out_of_memory)
    return Stepped(runner, **settings)


@pytest.mark.parametrize("after", [False, True], ids=["before writing", "after writing"])
def test_others_get_their_tokens(after: bool) -> None:
    engine = stepped(
        after=after, num_blocks=64, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=40
    )
    random = Random(0)
    prompts = [[n % 5] * random.randint(1, 20) for n in range(16)]
    for number in (3, 4, 9, 15):
        prompts[number] = [CULPRIT, *prompts[number]]
    sequences = [engine.add(prompt, 12) for prompt in prompts]
    engine.run()
    for sequence, prompt in zip(sequences, prompts, strict=True):
        if prompt[0] == CULPRIT:
            assert (sequence.finish_reason, sequence.num_output_tokens) == ("error", 0)
        else:
            assert sequence.finish_reason == "length"
            assert sequence.tokens[len(prompt) :] == continuation(prompt, 12)
    assert engine.pool.num_active == 0
    errors = [e for e in engine.events if isinstance(e, RequestFinished) and e.reason == "error"]
    assert len(errors) == 4


def test_a_step_counts_what_it_computed_and_not_what_raised() -> None:
    engine = stepped(max_num_batched_tokens=32)
    engine.add([1, 2, 3], 1)
    engine.add([CULPRIT] * 9, 1)
    engine.run()
    (step,) = (e for e in engine.events if isinstance(e, StepCompleted))
    assert (step.prefill_tokens, step.decode_tokens, step.active_blocks) == (3, 0, 0)


def test_a_call_ends_as_a_whole() -> None:
    engine = stepped(max_num_batched_tokens=32)
    doomed = engine.call([[1, 2], [CULPRIT], [3]], 5)
    other = engine.add([1, 2, 3], 5)
    engine.run()
    assert [s.finish_reason for s in doomed.sequences] == ["error"] * 3
    assert other.tokens[3:] == continuation([1, 2, 3], 5)


def test_few_steps_find_one_culprit_among_many() -> None:
    engine = stepped(num_blocks=80, max_num_seqs=64, max_num_batched_tokens=64)
    for number in range(64):
        engine.add([CULPRIT if number == 41 else number % 5], 1)
    engine.run()
    assert engine.steps == 1
    assert engine.faulty.num_raised == 7, "64 rows, then 32, 16, 8, 4, 2, 1"


def test_a_culprit_that_is_alone_ends_alone() -> None:
    engine = stepped()
    sequence = engine.add([CULPRIT], 3)
    engine.run()
    assert sequence.finish_reason == "error"
    late = engine.add([1], 3)
    engine.run()
    assert late.finish_reason == "length"


def test_a_call_whose_every_choice_raises_does_not_end_the_engine() -> None:
    engine = stepped(max_num_seqs=4)
    call = engine.call([[CULPRIT]], 3, n=4)
    engine.run()
    assert {s.finish_reason for s in call.sequences} == {"error"}


def test_a_broken_device_ends_the_engine_with_its_own_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = stepped()
    sequences = [engine.add([n], 3) for n in range(3)]
    engine.faulty.broken = RuntimeError("device lost")
    with caplog.at_level(logging.ERROR), pytest.raises(RuntimeError, match="device lost"):
        engine.whole.run()
    assert [s.finish_reason for s in sequences] == [None] * 3
    assert "the runner's self-test failed" in caplog.text


class NoMemory(FaultyRunner):
    """No memory for a self-test."""

    def self_test(self) -> None:
        raise DeviceOutOfMemoryError(1)


def test_to_have_no_memory_for_the_self_test_is_not_to_be_broken() -> None:
    engine = Stepped(NoMemory(ContentRunner(4), is_culprit))
    doomed, other = engine.add([CULPRIT], 3), engine.add([1], 3)
    engine.run()
    assert (doomed.finish_reason, other.finish_reason) == ("error", "length")


@pytest.mark.parametrize("seed", range(5))
def test_out_of_memory_while_the_culprit_is_sought_costs_nobody_a_token(seed: int) -> None:
    runner = FaultyRunner(ContentRunner(4), is_culprit, out_of_memory=0.3, seed=seed)
    engine = Stepped(runner, num_blocks=30, max_num_seqs=8)
    prompts = [[CULPRIT if n == 2 else n % 5, n % 3] * 3 for n in range(6)]
    sequences = [engine.add(prompt, 8) for prompt in prompts]
    engine.run()
    for sequence, prompt in zip(sequences, prompts, strict=True):
        assert sequence.finish_reason == ("error" if prompt[0] == CULPRIT else "length")
        if prompt[0] != CULPRIT:
            assert sequence.tokens[len(prompt) :] == continuation(prompt, 8)


def test_the_log_has_the_traceback_once(caplog: pytest.LogCaptureFixture) -> None:
    engine = stepped(max_num_seqs=8)
    for _ in range(5):
        engine.add([CULPRIT], 3)
    with caplog.at_level(logging.ERROR, logger="kvscope_engine.step"):
        engine.run()
    (record,) = caplog.records
    assert "request 1000 raises in a step: it ends with an error" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is InjectedError


class Flaky(ContentRunner):
    """Raises once, for no row's sake."""

    raised = False

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        if not self.raised:
            self.raised = True
            raise OSError("a glitch")
        return super().execute(plan)


def test_a_glitch_costs_nobody_anything() -> None:
    engine = Accounting(max_num_batched_tokens=32)
    sequences = [engine.add([n], 3) for n in range(3)]
    executed = execute(Flaky(4), engine.scheduler.schedule())
    assert not executed.culprits
    assert [row.sequence for row in executed.plan.rows] == sequences


class Activations:
    """Memory that a step holds while it runs."""


class Holds(ContentRunner):
    """A runner whose step leaves what it held in the frames of its exception."""

    def __init__(self) -> None:
        super().__init__(4)
        self.held: list[weakref.ref[Activations]] = []
        self.left: list[int] = []

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        self.left.append(sum(ref() is not None for ref in self.held))
        activations = Activations()
        self.held.append(weakref.ref(activations))
        if any(is_culprit(row) for row in plan.rows):
            raise InjectedError
        return super().execute(plan)


def test_what_a_failed_step_held_is_free_before_the_next() -> None:
    engine = Accounting(max_num_batched_tokens=32)
    for prompt in ([1], [2], [CULPRIT], [3]):
        engine.add(prompt, 3)
    runner = Holds()
    execute(runner, engine.scheduler.schedule())
    assert len(runner.left) == 5
    assert set(runner.left) == {0}
