"""Simulated pools of other sizes, for models whose layers are of several kinds."""

from exporter.fold.shadow.fold import Shadows

__all__ = ["Shadows"]
