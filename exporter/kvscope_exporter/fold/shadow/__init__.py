"""Simulated pools of other sizes, for models whose layers are of several kinds."""

from kvscope_exporter.fold.shadow.fold import Shadows

__all__ = ["Shadows"]
