"""A recording as OpenMetrics with timestamps, which promtool turns into blocks of a Prometheus."""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kvscope_exporter.replay.playback import Playback

MAX_SAMPLES = 4_000_000
"""They are held in memory until all are known, since a family's lines stand together: 2 GB."""
_PARTS = ("le", "quantile")
"""Labels by which the lines of one histogram or summary differ."""


_UP = Family("up", "Whether the server's page was there; a Prometheus adds it.", "gauge")
_UP.add_sample("up", {}, 1.0)


class TooManyError(Exception):
    """The recording has too many samples at this step."""


class Pages(Collector):
    """The pages of a recording at regular moments, as families whose samples have their times."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        """labels: those that a Prometheus would have added; a page's own take precedence."""
        self._labels = dict(labels)
        self._families: dict[str, Family] = {}
        self.num_samples = 0

    def read(self, playback: Playback, step_ns: int) -> Iterator[float]:
        """Take the page of every `step_ns`; yields the share that was played. Raises
        TooManyError."""
        begins_ns, ends_ns = playback.file.begins_ns, playback.file.ends_ns
        if (ends_ns - begins_ns) // step_ns > MAX_SAMPLES:
            raise TooManyError(f"over {MAX_SAMPLES:,} pages: a longer --step has fewer")
        for moment in range(-(-begins_ns // step_ns) * step_ns, ends_ns + 1, step_ns):
            playback.to(moment)
            self._add(_UP, moment / 1e9)
            for family in playback.exporter.registry.collect():
                self._add(family, moment / 1e9)
            if self.num_samples > MAX_SAMPLES:
                raise TooManyError(f"over {MAX_SAMPLES:,} samples: a longer --step has fewer")
            yield (moment - begins_ns) / max(1, ends_ns - begins_ns)

    def text(self) -> bytes:
        """OpenMetrics 1.0."""
        registry = CollectorRegistry()
        registry.register(self)
        # Otherwise the colon in others' names becomes an underscore in samples, not in their type.
        return bytes(generate_latest(registry, "allow-utf-8"))  # type: ignore[no-untyped-call]

    def collect(self) -> Iterator[Family]:
        for family in self._families.values():
            family.samples.sort(key=_metric)  # stable: within one, pages stay in order of time
            yield family

    def describe(self) -> list[Family]:
        return []

    def _add(self, family: Family, seconds: float) -> None:
        known = self._families.get(family.name)
        if known is None:
            known = Family(family.name, family.documentation, family.type, family.unit)
            self._families[family.name] = known
        known.samples += [
            Sample(sample.name, {**self._labels, **sample.labels}, sample.value, seconds)
            for sample in family.samples
        ]
        self.num_samples += len(family.samples)


def _metric(sample: Sample) -> list[tuple[str, str]]:
    return sorted(item for item in sample.labels.items() if item[0] not in _PARTS)
