"""Executes a step so that only a call that raises ends: the others' tokens are unaffected.

A step that raised is executed again in halves, down to the calls that raise by themselves. This is
safe: nothing is committed before the whole step is through, no call's rows read what another's
write, and a row that is computed again writes the same KV into the same slots.
"""

import logging
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from engine.out_of_memory import DeviceOutOfMemoryError
from engine.runner import Runner
from engine.step_plan import SampledToken, ScheduledSequence, StepPlan
from kvscope_events.throttle import ThrottledLog

_Rows = list[ScheduledSequence]

_log = ThrottledLog(logging.getLogger(__name__))


@dataclass(slots=True)
class Executed:
    """The result of a step."""

    plan: StepPlan
    """The rows that were computed, without those of the culprits."""
    tokens: list[SampledToken | None]
    """One for each of those rows."""
    culprits: list[int] = field(default_factory=list)
    """Calls that raise by themselves."""


def execute(runner: Runner, plan: StepPlan) -> Executed:
    """Execute a plan, without the calls that raise. About 2 log2(calls) extra steps for each.

    Raises DeviceOutOfMemoryError; and the runner's own error if not even its self-test works: then
    no request is at fault.
    """
    try:
        return Executed(plan, runner.execute(plan))
    except DeviceOutOfMemoryError:
        raise
    except Exception as error:
        traceback.clear_frames(error.__traceback__)  # they hold the step's tensors
        if not _works(runner):
            raise
        failure = error
    separation = _Separation(runner)
    separation.split(_by_call(plan.rows), failure)
    return separation.result()


def _works(runner: Runner) -> bool:
    """Whether the device and the model work at all; lack of memory proves nothing."""
    try:
        with suppress(DeviceOutOfMemoryError):
            runner.self_test()
    except Exception as error:
        _log.log(logging.ERROR, "self-test", "the runner's self-test failed", error)
        return False
    return True


def _by_call(rows: list[ScheduledSequence]) -> list[_Rows]:
    """The rows of each call, in the order of the step."""
    calls: dict[int, _Rows] = {}
    for row in rows:
        calls.setdefault(row.sequence.request_id, []).append(row)
    return list(calls.values())


class _Separation:
    """Computes calls of which some raise."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._rows: _Rows = []
        self._tokens: list[SampledToken | None] = []
        self._culprits: list[int] = []

    def split(self, calls: list[_Rows], error: Exception) -> None:
        """Separate calls that raised together. Raises DeviceOutOfMemoryError."""
        if len(calls) == 1:
            self._convict(calls[0][0].sequence.request_id, error)
            return
        middle = len(calls) // 2
        self._try(calls[:middle])
        self._try(calls[middle:])

    def result(self) -> Executed:
        if not self._culprits:
            _log.warning("none", "a step raised, but none of its calls does by itself: all go on")
        return Executed(StepPlan.of(self._rows), self._tokens, self._culprits)

    def _try(self, calls: list[_Rows]) -> None:
        rows = list(chain.from_iterable(calls))
        try:
            tokens = self._runner.execute(StepPlan.of(rows))
        except DeviceOutOfMemoryError:
            raise
        except Exception as error:
            traceback.clear_frames(error.__traceback__)
            failure = error
        else:
            self._rows += rows
            self._tokens += tokens
            return
        self.split(calls, failure)

    def _convict(self, request_id: int, error: Exception) -> None:
        self._culprits.append(request_id)
        _log.log(
            logging.ERROR,
            type(error).__name__,
            f"request {request_id} raises in a step: it ends with an error, others go on",
            error,
        )
