"""From the folds' state to Prometheus families."""

from exporter.collect.collector import EngineCollector

__all__ = ["EngineCollector"]
