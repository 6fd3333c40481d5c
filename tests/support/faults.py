"""Faults for chosen requests: a runner that raises for every step with a row of theirs."""

import random
from collections.abc import Callable

from kvscope_engine.out_of_memory import DeviceOutOfMemoryError
from kvscope_engine.runner import Runner
from kvscope_engine.step_plan import SampledToken, ScheduledSequence, StepPlan
from kvscope_events.events import DeviceMemorySampled


class InjectedError(Exception):
    """Raised by a request that a test has chosen."""


class FaultyRunner:
    """A `Runner` over another, which it leaves as any step does that raised.

    after: whether the step is computed before it raises, so that its KV is written.
    """

    def __init__(
        self,
        runner: Runner,
        raises: Callable[[ScheduledSequence], bool],
        *,
        after: bool = False,
        out_of_memory: float = 0.0,
        seed: int = 0,
    ) -> None:
        """raises: whether a row does. out_of_memory: share of steps that have none.

        A step of one token always has it.
        """
        self._runner = runner
        self._raises = raises
        self._after = after
        self._out_of_memory = out_of_memory
        self._random = random.Random(seed)
        self.num_raised = 0
        self.broken: Exception | None = None
        """Raised by every step, and by the self-test."""

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        if self.broken is not None:
            raise self.broken
        if plan.num_tokens > 1 and self._random.random() < self._out_of_memory:
            raise DeviceOutOfMemoryError(None)
        culprits = [row.sequence.sequence_id for row in plan.rows if self._raises(row)]
        if not culprits or self._after:
            sampled = self._runner.execute(plan)
        if culprits:
            self.num_raised += 1
            raise InjectedError(f"sequences {culprits}")
        return sampled

    def self_test(self) -> None:
        if self.broken is not None:
            raise self.broken
        self._runner.self_test()

    def drop_caches(self) -> None:
        self._runner.drop_caches()

    def sample_memory(self) -> DeviceMemorySampled:
        return self._runner.sample_memory()
