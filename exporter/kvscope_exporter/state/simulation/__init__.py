"""Simulated pools of other sizes, for models whose layers are of several kinds."""

from kvscope_exporter.state.simulation.fold import Shadows

__all__ = ["Shadows"]
