"""An engine's last half hour: the sums and levels of its folds every two seconds.

No fold of its own: the others have the sums, and a sum less an earlier one is what happened in
between. Periods follow from the times of batches and their arrival alone, so that a replay has the
same.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from kvscope_exporter.state.cache import Cache
from kvscope_exporter.state.device_memory import DeviceMemory
from kvscope_exporter.state.fold import Folds
from kvscope_exporter.state.latency import Latency
from kvscope_exporter.state.ledger import Ledger
from kvscope_exporter.state.lengths import Lengths
from kvscope_exporter.state.preemption import Preemption
from kvscope_exporter.state.requests import Requests
from kvscope_exporter.state.steps import Steps
from kvscope_exporter.state.time_ledger import TimeLedger

PERIOD_NS = 2_000_000_000
KEPT_PERIODS = 900
"""Half an hour; an idle engine's last longer."""
Counts = tuple[int, ...]
MISSED = ("cold", "evicted", "forgotten", "unreachable", "vetoed", "partial")
"""Causes of misses."""
_EVICTED, _FORGOTTEN = MISSED.index("evicted"), MISSED.index("forgotten")


class Figures(NamedTuple):
    """Sums since the engine's session began, and levels at the end of a period."""

    admitted: int
    """Requests that began to run."""
    ended: int
    aborted: int
    failed: int
    rejected: int
    """Refused for any reason."""
    crowded_out: int
    """Those of them for which the queue was full."""
    met_dead: int
    """Those of them for which the engine was dead."""
    waiting: int
    """A level, like the next."""
    running: int
    steps: int
    step_seconds: float
    prefill_tokens: int
    decode_tokens: int
    first_token: Counts
    """Observations by bucket, like the next."""
    inter_token: Counts
    preemptions: int
    shortages: int
    """Preemptions for lack of blocks."""
    recomputed_tokens: int
    stalled_seconds: float
    queried_blocks: int
    hit_blocks: int
    missed_blocks: Counts
    """By cause, in the order of MISSED; 0 while the names are not known."""
    resets: int
    active: int
    """Blocks, a level like the next."""
    usable: int
    out_of_memory: int
    """Steps that ran out of device memory."""
    sequences: int
    """Those of arrived requests: a request with n > 1 has several."""
    prompts: int
    """Each prompt of a request once, and its blocks, whatever the number of samples."""
    prompt_blocks: int
    answers: int
    """Sequences that ended by themselves, and their tokens."""
    answer_tokens: int

    first_tokens: int
    """Requests with a first token, and those of them that had it late."""
    late: int
    unserved: int
    """Requests that were given up, or failed, before their first token."""
    late_parts: Counts
    """Nanoseconds of late and unserved requests up to the first token, by part, in the order of
    `time_parts.PARTS`, as are the next."""
    standing: Counts
    """Mean number of waiting requests times nanoseconds, by what held them."""
    late_tokens: Counts
    """Nanoseconds of further tokens that were late, by what their steps took."""
    sequences_running: int
    """A level."""
    slow_ns: int
    """Time of steps beyond the expected."""
    expected_ns: int

    @property
    def evicted_blocks(self) -> int:
        """Missed blocks whose content had been there."""
        return self.missed_blocks[_EVICTED] + self.missed_blocks[_FORGOTTEN]

    @property
    def arrived(self) -> int:
        """Requests that entered the queue."""
        return self.ended + self.aborted + self.failed + self.waiting + self.running


class Period(NamedTuple):
    """The state at the end of a period in which something arrived."""

    end_ns: int
    """Our monotonic clock."""
    session: int
    """Number of the engine's session on this page: sums of two sessions cannot be subtracted."""
    figures: Figures


class Timeline:
    """The last periods; those in which nothing arrived are left out."""

    def __init__(self) -> None:
        self._periods: deque[Period] = deque(maxlen=KEPT_PERIODS)
        self._session = 0

    def renew(self) -> None:
        """Another session begins."""
        self._session += 1

    def forget(self) -> None:
        """The times of the periods so far are not known."""
        self._periods.clear()

    def add(self, end_ns: int, figures: Figures) -> None:
        """A period has ended."""
        self._periods.append(Period(end_ns, self._session, figures))

    def until(self, now_ns: int, present: Figures | None) -> "Timeline":
        """A copy for an answer, to which the present belongs."""
        copied = Timeline()
        copied._periods.extend(self._periods)
        copied._session = self._session
        if present is not None:
            copied.add(now_ns, present)
        return copied

    def __iter__(self) -> Iterator[Period]:
        return iter(self._periods)


def figures_of(folds: Folds) -> Figures:
    """The present sums and levels; the folds are held meanwhile."""
    requests, steps, latency = folds[Requests], folds[Steps], folds[Latency]
    cache, ledger, lengths = folds[Cache], folds[Ledger], folds[Lengths]
    finished, rejected = requests.finished, requests.rejected
    costs, time = folds[Preemption].costs.values(), folds[TimeLedger]
    missed = cache.missed_blocks
    return Figures(
        admitted=sum(latency.queue.counts),
        ended=sum(finished.values()) - finished["abort"] - finished["error"],
        aborted=finished["abort"],
        failed=finished["error"],
        rejected=sum(rejected.values()),
        crowded_out=rejected["queue_full"],
        met_dead=rejected["engine_dead"],
        waiting=max(0, requests.waiting),
        running=max(0, requests.running),
        steps=sum(steps.duration.counts),
        step_seconds=steps.duration.total,
        prefill_tokens=steps.prefill_tokens,
        decode_tokens=steps.decode_tokens,
        first_token=tuple(latency.first_token.counts),
        inter_token=tuple(latency.inter_token.counts),
        preemptions=sum(cost.preemptions for cost in costs),
        shortages=sum(
            cost.preemptions
            for (_, cause), cost in folds[Preemption].costs.items()
            if cause == "out_of_blocks"
        ),
        recomputed_tokens=sum(cost.recomputed_tokens for cost in costs),
        stalled_seconds=sum(cost.stalled_ns for cost in costs) / 1e9,
        queried_blocks=cache.queried_blocks["first"],
        hit_blocks=cache.hit_blocks["first"],
        missed_blocks=tuple(missed.get(cause, 0) for cause in MISSED),
        resets=cache.resets,
        active=ledger.num_active if ledger.known else 0,
        usable=ledger.num_usable if ledger.known else 0,
        out_of_memory=sum(folds[DeviceMemory].oom_events.values()),
        sequences=lengths.sequences,
        prompts=lengths.prompts,
        prompt_blocks=lengths.prompt_blocks,
        answers=lengths.answers,
        answer_tokens=lengths.answer_tokens,
        first_tokens=time.answered,
        late=time.late,
        unserved=time.unserved,
        late_parts=tuple(time.late_first_token),
        standing=tuple(time.standing),
        late_tokens=tuple(time.late_tokens),
        sequences_running=max(0, requests.sequences_running),
        slow_ns=time.slow_ns,
        expected_ns=time.expected_ns,
    )


READ = (Cache, DeviceMemory, Latency, Ledger, Lengths, Preemption, Requests, Steps, TimeLedger)
"""The folds that these figures come from."""
