"""The cost of preemption, the preemptions themselves, and the sequences that took the victims'
blocks.
"""

from kvscope_exporter.fold.preemption.costs import SWAPPED, UNATTRIBUTED, Costs, Kind
from kvscope_exporter.fold.preemption.fold import Preemption
from kvscope_exporter.fold.preemption.victim import Victim

__all__ = ["SWAPPED", "UNATTRIBUTED", "Costs", "Kind", "Preemption", "Victim"]
