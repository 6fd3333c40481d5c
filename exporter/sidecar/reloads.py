"""A collector that shows whether the last reload of the configuration succeeded."""

from collections.abc import Iterable

from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from exporter.clock import Clock
from exporter.collect.families import Families


class Reloads(Collector):
    """Begins after a first successful load, without which there is no process."""

    def __init__(self, clock: Clock) -> None:
        self._families = Families({}, clock)
        self._successful = True

    def count(self, *, successful: bool) -> None:
        """Remember a reload that has just ended."""
        self._successful = successful

    def collect(self) -> Iterable[Family]:
        yield self._families.single("kvscope_config_last_reload_successful", self._successful)
