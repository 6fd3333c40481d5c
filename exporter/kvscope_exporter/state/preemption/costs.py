"""The costs of one mode and cause of preemption, as sums."""

from dataclasses import dataclass, field
from typing import get_args

from kvscope_events.vocabulary import PreemptionCause, Tier

Kind = tuple[str, ...]
"""Mode and cause."""

UNATTRIBUTED: Kind = ("", "")
"""Resumptions after a preemption that was not seen, so mode and cause are unknown."""


SWAPPED: Kind = ("swap", "out_of_blocks")
"""The only kind of preemption that copies blocks: after running out of memory they are dropped."""


@dataclass(slots=True)
class Costs:
    """`discarded = found + swapped + recomputed + abandoned + lost + tokens of waiting victims`.

    For unattributed ones only `found`, `swapped`, `recomputed` and `stalled` are ever above 0:
    their preemptions were counted before a gap, or never.
    """

    preemptions: int = 0
    discarded_tokens: int = 0
    found_tokens: int = 0
    loaded_tokens: dict[Tier, int] = field(default_factory=dict)
    """Those of `found` that a tier below the pool supplied, by tier; an unknown one is `other`."""
    swapped_tokens: int = 0
    """Copied back from the host."""
    recomputed_tokens: int = 0
    abandoned_tokens: int = 0
    """Discarded by victims that ended before they resumed."""
    lost_tokens: int = 0
    """Discarded by victims that were waiting when a part of the stream was lost."""
    stalled_ns: int = 0
    """Time until the victims resumed or ended, added when they did."""


def costs_by_kind() -> dict[Kind, Costs]:
    """All causes of a recomputing preemption, at 0; swaps are added if they are reported."""
    return {("recompute", cause): Costs() for cause in get_args(PreemptionCause)}
