"""An engine's last five minutes of load: its waste and limits, for the adviser's proposals.

Kept in slots of five seconds, the oldest of which falls out; a sum over them is the window.
"""

from collections import deque
from dataclasses import dataclass, field

from kvscope_events.events import (
    DeviceOutOfMemory,
    Hello,
    PoolCounted,
    PoolCreated,
    PoolSnapshot,
    RequestPreempted,
    RequestResumed,
    SequenceFinished,
    StepCompleted,
)
from kvscope_events.vocabulary import PreemptionCause
from kvscope_exporter.state.call_fold import CallFold

SLOT_NS = 5_000_000_000
NUM_SLOTS = 60
NEED_STEPS = 16
"""Bins for the demand for blocks, per pool size."""
NEED_BINS = 2 * NEED_STEPS + 1
"""The last bin stands for two pools; more is never counted."""
_CROWDED = 0.05
"""Waiting sequences per running one, on average."""


@dataclass(slots=True)
class Slot:
    """Sums over five seconds; slots can be added up."""

    number: int
    steps: int = 0
    busy_ns: int = 0
    prefill_tokens: int = 0
    running_ns: int = 0
    """Running sequences times the duration of their steps, and so on."""
    waiting_ns: int = 0
    active_ns: int = 0
    unfilled_ns: int = 0
    """Token slots of active blocks that were not written, times durations."""
    most_active: int = 0
    largest_step: int = 0
    """Tokens of the largest step that was completed."""
    largest_steps: int = 0
    """Steps of that size."""
    preemptions: dict[PreemptionCause, int] = field(default_factory=dict)
    recomputed_tokens: dict[PreemptionCause, int] = field(default_factory=dict)
    out_of_memory: int = 0
    largest_failure: int = 0
    """Tokens of the largest step that ran out of device memory."""
    wanted_per_token: float = 0.0
    """Most bytes per token that a failed step requested."""
    finished: int = 0
    finished_tokens: int = 0
    """Prompts and outputs of the sequences that ended."""
    output_tokens: int = 0
    """Outputs of those that ended by themselves, and the most that they had asked for."""
    max_tokens: int = 0
    need_ns: list[int] = field(default_factory=lambda: [0] * NEED_BINS)
    """Time by the demand of everything that ran or waited, in sixteenths of the pool."""

    @property
    def is_crowded(self) -> bool:
        """Whether requests waited that a larger pool would have admitted earlier: equal beginnings
        that are computed at the same time are not found."""
        return self.waiting_ns > _CROWDED * self.running_ns

    def add(self, other: "Slot") -> None:
        """Add another slot's sums to these."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.most_active = max(self.most_active, other.most_active)
        self.wanted_per_token = max(self.wanted_per_token, other.wanted_per_token)
        self.computed(other.largest_step, other.largest_steps)
        for mine, theirs in (
            (self.preemptions, other.preemptions),
            (self.recomputed_tokens, other.recomputed_tokens),
        ):
            for cause, number in theirs.items():
                mine[cause] = mine.get(cause, 0) + number
        self.largest_failure = max(self.largest_failure, other.largest_failure)
        for position, time_ns in enumerate(other.need_ns):
            self.need_ns[position] += time_ns

    def computed(self, tokens: int, steps: int) -> None:
        """Steps with these token counts were completed."""
        if tokens > self.largest_step:
            self.largest_step, self.largest_steps = tokens, 0
        if tokens == self.largest_step:
            self.largest_steps += steps


_SUMS = (
    *("steps", "busy_ns", "prefill_tokens"),
    *("running_ns", "waiting_ns", "active_ns", "unfilled_ns"),
    *("out_of_memory", "finished", "finished_tokens", "output_tokens", "max_tokens"),
)


def limit_of(hello: Hello) -> int | None:
    """The limit on running sequences; None: the server does not say."""
    settings = hello.settings
    limit = settings.get("max_num_seqs") or settings.get("max_running_requests")
    return int(limit) if limit else None


class LoadWindow(CallFold):
    """A new pool and lost batches empty the window: earlier data says nothing about the present."""

    name = "recent"

    def __init__(self) -> None:
        super().__init__(
            {
                Hello: self._introduced,
                PoolCreated: self._sized,
                PoolSnapshot: self._synchronised,
                PoolCounted: self._synchronised,
                StepCompleted: self._stepped,
                RequestPreempted: self._preempted,
                RequestResumed: self._resumed,
                SequenceFinished: self._ended,
                DeviceOutOfMemory: self._out_of_memory,
            }
        )
        self._slots: deque[Slot] = deque(maxlen=NUM_SLOTS)
        self._victims: dict[int, PreemptionCause] = {}
        self._usable = 0
        self._block_size = 0
        self._began_ns: int | None = None
        self.last_step_ns: int | None = None
        """When the last step ended, on the producer's clock: the window ends there, since an idle
        engine says nothing about a load. None: no step since the window began.
        """
        self._max_num_seqs: int | None = None
        self.largest_step: int | None = 0
        """Tokens of the largest step of the whole session, like the activation peak: a new pool
        resets neither. None: steps were missed."""

    def window(self) -> tuple[float, Slot]:
        """The seconds observed up to the last step, and their sums."""
        total, end_ns = Slot(0), self.last_step_ns
        if self._began_ns is None or end_ns is None:
            return 0.0, total
        first = end_ns // SLOT_NS - NUM_SLOTS + 1
        for slot in self._slots:
            if slot.number >= first:
                total.add(slot)
        return (end_ns - max(self._began_ns, first * SLOT_NS)) / 1e9, total

    def on_lost(self) -> None:
        self._empty()
        self.largest_step = None

    def _empty(self) -> None:
        self._slots.clear()
        self._victims.clear()
        self._began_ns = self.last_step_ns = None

    def _introduced(self, event: Hello) -> None:
        self._max_num_seqs = limit_of(event)

    def _sized(self, event: PoolCreated) -> None:
        self._empty()
        self._size(event)

    def _synchronised(self, event: PoolSnapshot | PoolCounted) -> None:
        if event.largest_step is not None:  # includes the steps that we have missed
            self.largest_step = max(self.largest_step or 0, event.largest_step)
        elif not self._usable:  # the pool is older than our view of it
            self.largest_step = None
        self._size(event)

    def _size(self, event: PoolCreated | PoolSnapshot | PoolCounted) -> None:
        self._usable = event.num_blocks - event.reserved
        self._block_size = event.block_size

    def _slot(self) -> Slot:
        time_ns = self.batch.time_ns
        number = time_ns // SLOT_NS
        slots = self._slots
        if not slots or slots[-1].number != number:
            if self._began_ns is None:
                self._began_ns = time_ns
            slots.append(Slot(number))
        return slots[-1]

    def _stepped(self, event: StepCompleted) -> None:
        usable = self._usable
        if not usable:
            return
        slot, took_ns = self._slot(), event.duration_ns
        self.last_step_ns = self.batch.time_ns
        active, running, waiting = event.active_blocks, event.running, event.waiting
        slot.steps += 1
        slot.busy_ns += took_ns
        slot.prefill_tokens += event.prefill_tokens
        tokens = event.prefill_tokens + event.decode_tokens
        slot.computed(tokens, 1)
        if self.largest_step is not None:
            self.largest_step = max(self.largest_step, tokens)
        slot.running_ns += running * took_ns
        slot.waiting_ns += waiting * took_ns
        slot.active_ns += active * took_ns
        if event.slots_filled is not None:
            slot.unfilled_ns += (active * self._block_size - event.slots_filled) * took_ns
        slot.most_active = max(slot.most_active, active)
        need: float = active
        if waiting and running:
            each = active / running
            limit = self._max_num_seqs
            # A backlog is served one after another: at most this many more are wanted at once.
            admitted = min(waiting, running)
            if limit is not None:
                admitted = min(admitted, max(0, limit - running))
            need += admitted * each
        position = min(int(need * NEED_STEPS / usable), NEED_BINS - 1)
        slot.need_ns[position] += took_ns

    def _preempted(self, event: RequestPreempted) -> None:
        counts = self._slot().preemptions
        counts[event.cause] = counts.get(event.cause, 0) + 1
        self._victims[event.sequence] = event.cause

    def _resumed(self, event: RequestResumed) -> None:
        cause = self._victims.pop(event.sequence, None)
        if cause is not None:
            tokens = self._slot().recomputed_tokens
            tokens[cause] = tokens.get(cause, 0) + event.recompute_tokens

    def _ended(self, event: SequenceFinished) -> None:
        self._victims.pop(event.sequence, None)
        slot = self._slot()
        slot.finished += 1
        slot.finished_tokens += event.prompt_tokens + event.output_tokens
        if event.reason in ("stop", "length"):
            slot.output_tokens += event.output_tokens
            slot.max_tokens += event.max_tokens

    def _out_of_memory(self, event: DeviceOutOfMemory) -> None:
        slot = self._slot()
        slot.out_of_memory += 1
        if event.step_tokens:
            slot.largest_failure = max(slot.largest_failure, event.step_tokens)
            if event.wanted_bytes is not None:
                wanted = event.wanted_bytes / event.step_tokens
                slot.wanted_per_token = max(slot.wanted_per_token, wanted)
