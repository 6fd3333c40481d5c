"""The cache of a whole fleet: which replica holds what, and what each step of a waterfall found."""

from kvscope_exporter.state.fleet.holders import Holders
from kvscope_exporter.state.fleet.waterfall import Steps, Waterfall

__all__ = ["Holders", "Steps", "Waterfall"]
