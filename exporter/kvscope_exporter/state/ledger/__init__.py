"""The state of a pool's blocks: numbered ones each by itself, counted ones as counts."""

from kvscope_exporter.state.ledger.fold import Ledger
from kvscope_exporter.state.ledger.holds import HoldReason, Holds

__all__ = ["HoldReason", "Holds", "Ledger"]
