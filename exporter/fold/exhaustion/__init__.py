"""Forecast of running out of KV blocks: committed blocks, the trend, and a probability."""

from exporter.fold.exhaustion.fold import Exhaustion
from exporter.fold.exhaustion.probability import HORIZONS

__all__ = ["HORIZONS", "Exhaustion"]
