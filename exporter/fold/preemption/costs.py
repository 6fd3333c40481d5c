"""The sums of the bill, for one mode and cause of preemption."""

from dataclasses import dataclass
from typing import get_args

from kvscope_events.vocabulary import PreemptionCause

Kind = tuple[str, ...]
"""Mode and cause."""

UNATTRIBUTED: Kind = ("", "")
"""Resumptions that answer a preemption which was not seen, whose mode and cause are unknown."""


SWAPPED: Kind = ("swap", "out_of_blocks")
"""The one kind of preemption that copies blocks: what ran out of memory is dropped at once."""


@dataclass(slots=True)
class Costs:
    """`discarded = found + swapped + recomputed + abandoned + lost + what those that wait lost`.

    Of the unattributed only `found`, `swapped`, `recomputed` and `stalled` are ever more than 0:
    their preemptions were counted before a gap, or never.
    """

    preemptions: int = 0
    discarded_tokens: int = 0
    found_tokens: int = 0
    swapped_tokens: int = 0
    """Copied back from the host."""
    recomputed_tokens: int = 0
    abandoned_tokens: int = 0
    """Discarded by victims that ended before they resumed."""
    lost_tokens: int = 0
    """Discarded by victims that waited when a part of the stream was lost."""
    stalled_ns: int = 0
    """Until the victims resumed or ended, added when they did."""


def costs_by_kind() -> dict[Kind, Costs]:
    """All causes of a recomputing preemption, at 0; swaps are added where they are reported."""
    return {("recompute", cause): Costs() for cause in get_args(PreemptionCause)}
