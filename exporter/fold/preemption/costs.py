"""The sums of the bill, for one mode and cause of preemption."""

from dataclasses import dataclass
from itertools import product
from typing import get_args

from kvscope_events.vocabulary import PreemptionCause, PreemptionMode

Kind = tuple[str, ...]
"""Mode and cause."""

UNATTRIBUTED: Kind = ("", "")
"""Resumptions that answer a preemption which was not seen, whose mode and cause are unknown."""


@dataclass(slots=True)
class Costs:
    """`discarded = found + recomputed + abandoned + lost + what the victims that wait lost`.

    Of the unattributed only `found`, `recomputed` and `stalled` are ever more than 0: their
    preemptions were counted before a gap, or never.
    """

    preemptions: int = 0
    discarded_tokens: int = 0
    found_tokens: int = 0
    recomputed_tokens: int = 0
    abandoned_tokens: int = 0
    """Discarded by victims that ended before they resumed."""
    lost_tokens: int = 0
    """Discarded by victims that waited when a part of the stream was lost."""
    stalled_ns: int = 0
    """Until the victims resumed or ended, added when they did."""


def costs_by_kind() -> dict[Kind, Costs]:
    """All modes and causes at 0."""
    return {kind: Costs() for kind in product(get_args(PreemptionMode), get_args(PreemptionCause))}
