"""Forecast of running out of KV blocks: committed blocks, the trend, and a probability."""

from kvscope_exporter.state.exhaustion.fold import Exhaustion
from kvscope_exporter.state.exhaustion.probability import HORIZONS

__all__ = ["HORIZONS", "Exhaustion"]
