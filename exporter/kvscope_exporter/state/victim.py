"""One preemption: the victim, its loss and the cause, its fate, and the sequences that took its
blocks.
"""

from dataclasses import dataclass
from typing import Literal

from kvscope_events.events import AllocationFailed, RequestPreempted, RequestResumed

State = Literal["waiting", "resumed", "ended", "lost"]
"""Fate of a victim; lost: not reported, or reported in a lost part of the stream."""


@dataclass(slots=True, eq=False, kw_only=True)
class Victim:
    """Figures that are not known, or not yet, are None."""

    preempted: RequestPreempted
    wanted_by: AllocationFailed | None
    """The shortage that caused it; None: it was not a shortage of blocks, or not seen."""
    time_ns: int
    """Time of its batch, on the producer's monotonic clock."""
    arrived_ns: int
    """Time of its batch, on our clock."""
    wall_ns: int
    """Time of its batch, on the producer's wall clock; 0: unknown."""
    state: State = "waiting"
    resumed: RequestResumed | None = None
    stalled_ns: int | None = None
    """Time until it resumed or ended."""
    taken_by: dict[int | None, int] | None = None
    """Blocks by the sequence that was the first to get them while the victim waited, in the order
    of time; None as a key: a sequence that is not known."""
    taken_by_further: int = 0
    """Blocks taken by sequences for which `taken_by` had no room."""
    is_followed: bool | None = None
    """Whether its blocks are tracked; None: not yet, since they were not reported."""
    kept_blocks: int | None = None
    """Its blocks that kept their content until it resumed or ended; None: it waits, or unknown."""
