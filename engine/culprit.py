"""Executes a step so that a call that raises ends alone: the others' tokens are what they would be.

A step that raised is executed again in halves, down to the rows that raise by themselves. That may
be done: nothing is committed before the whole step is through, no row of a step reads what another
writes, and a row that is computed again writes the same KV into the same slots.
"""

import logging
import traceback
from collections.abc import Sequence as Several
from contextlib import suppress
from dataclasses import dataclass, field

from engine.log_limit import LogLimit
from engine.out_of_memory import DeviceOutOfMemoryError
from engine.runner import Runner, SampledToken
from engine.sequence import Sequence
from engine.step_plan import ScheduledSequence, StepPlan

_log = LogLimit(logging.getLogger(__name__))


@dataclass(slots=True)
class Executed:
    """What a step came to."""

    plan: StepPlan
    """The rows that were computed, without those of the culprits."""
    tokens: list[SampledToken | None]
    """One for each of those rows."""
    culprits: list[int] = field(default_factory=list)
    """Calls with a row that raises by itself."""


def execute(runner: Runner, plan: StepPlan) -> Executed:
    """Execute a plan, without the calls that raise. About 2 log2(rows) further steps for each.

    Raises DeviceOutOfMemoryError; and what the runner raised, if not even its self-test works: then
    it is no request's fault.
    """
    try:
        return Executed(plan, runner.execute(plan))
    except DeviceOutOfMemoryError:
        raise
    except Exception as error:
        traceback.clear_frames(error.__traceback__)  # they hold the step's tensors
        if not _works(runner):
            raise
        separated = _Separation(runner)
        separated.split(plan.rows, error)
    return separated.result()


def _works(runner: Runner) -> bool:
    """Whether the device and the model work at all; not to have memory for it proves nothing."""
    try:
        with suppress(DeviceOutOfMemoryError):
            runner.self_test()
    except Exception as error:
        _log.log(logging.ERROR, "self-test", "the runner's self-test failed", error)
        return False
    return True


class _Separation:
    """Computes rows of which some raise."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._computed: list[tuple[ScheduledSequence, SampledToken | None]] = []
        self._culprits: list[int] = []

    def split(self, rows: Several[ScheduledSequence], error: Exception) -> None:
        """Rows that raised together. Raises DeviceOutOfMemoryError."""
        if len(rows) == 1:
            self._convict(rows[0].sequence, error)
            return
        middle = len(rows) // 2
        self._try(rows[:middle])
        self._try(rows[middle:])

    def result(self) -> Executed:
        """A call ends as a whole, also the rows of it that did not raise."""
        if not self._culprits:
            _log.warning("none", "a step raised, but none of its rows does by itself: all go on")
        rows, tokens = [], []
        for row, token in self._computed:
            if row.sequence.request_id not in self._culprits:
                rows.append(row)
                tokens.append(token)
        return Executed(StepPlan.of(rows), tokens, self._culprits)

    def _try(self, rows: Several[ScheduledSequence]) -> None:
        try:
            tokens = self._runner.execute(StepPlan.of(rows))
        except DeviceOutOfMemoryError:
            raise
        except Exception as error:
            traceback.clear_frames(error.__traceback__)
            self.split(rows, error)
        else:
            self._computed += zip(rows, tokens, strict=True)

    def _convict(self, sequence: Sequence, error: Exception) -> None:
        if sequence.request_id not in self._culprits:
            self._culprits.append(sequence.request_id)
        _log.log(
            logging.ERROR,
            type(error).__name__,
            f"request {sequence.request_id} raises in a step: it ends with an error, others go on",
            error,
        )
