"""The cost of preemption, the preemptions themselves, and the sequences that took the victims'
blocks.
"""

from kvscope_exporter.state.preemption.costs import UNATTRIBUTED, Costs, Kind
from kvscope_exporter.state.preemption.fold import Preemption
from kvscope_exporter.state.victim import Victim

__all__ = ["UNATTRIBUTED", "Costs", "Kind", "Preemption", "Victim"]
