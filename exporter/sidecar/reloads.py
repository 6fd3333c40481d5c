"""A collector that counts reloads of the configuration, by result."""

from collections.abc import Iterable

from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from exporter.catalogue.configuration import RELOAD_RESULTS
from exporter.clock import Clock
from exporter.collect.families import Families


class Reloads(Collector):
    """Begins after a first successful load, without which there is no process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._families = Families({}, clock)
        self._counts = dict.fromkeys(RELOAD_RESULTS, 0)
        self._successful = True
        self._succeeded_ns = clock.monotonic_ns()

    def count(self, *, successful: bool) -> None:
        """Remember a reload that has just ended."""
        self._counts["success" if successful else "failure"] += 1
        self._successful = successful
        if successful:
            self._succeeded_ns = self._clock.monotonic_ns()

    def collect(self) -> Iterable[Family]:
        families = self._families
        yield families.single("kvscope_config_last_reload_successful", self._successful)
        yield families.single(
            "kvscope_config_last_reload_success_timestamp_seconds",
            families.wall(self._succeeded_ns),
        )
        yield families.column("kvscope_config_reloads_total", self._counts)
