"""Samples of a stretch of the past, at regular moments, of the series that rules read."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kvscope.backtest import BacktestError

MAX_SAMPLES = 6_000_000
"""Held in memory, by us and by promtool: 2 GB together."""
_WORD = re.compile(r"[a-z_][a-z0-9_:]*")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_OTHERS = frozenset({"up", "process_start_time_seconds"})


def names_in(expression: str) -> set[str]:
    """Names of metrics in a rule's expression, recorded ones included."""
    words = _WORD.findall(_TEXT.sub("", expression))
    return {word for word in words if word in _OTHERS or "kvscope_" in word}


@dataclass(kw_only=True)
class Samples:
    """None: the series had no sample then."""

    source: str
    begins: int
    """Unix time in seconds of the first moment."""
    step: int
    count: int
    """Moments."""
    series: dict[str, list[float | None]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    @property
    def ends(self) -> int:
        return self.begins + (self.count - 1) * self.step

    def put(self, name: str, labels: Mapping[str, str], index: int, value: float) -> None:
        """Raises BacktestError if there are too many."""
        key = _key(name, labels)
        values = self.series.get(key)
        if values is None:
            if (len(self.series) + 1) * self.count > MAX_SAMPLES:
                raise BacktestError(
                    f"{self.source}: over {MAX_SAMPLES:,} samples: a shorter --last, or --only "
                    "model_name=NAME"
                )
            values = self.series[key] = [None] * self.count
            self.names.add(name)
        # promtool's time begins at 0, so that times of day in samples move with it.
        is_time = name.endswith("_timestamp_seconds") or name == "process_start_time_seconds"
        values[index] = value - self.begins if is_time else value

    def inputs(self) -> Iterator[dict[str, str]]:
        """The series as promtool reads them."""
        for key, values in self.series.items():
            yield {"series": key, "values": " ".join(_notations(values))}


def _notations(values: Iterable[float | None]) -> Iterator[str]:
    """A series that ends is marked as Prometheus marks it, and gone at once."""
    was_there = False
    for value in values:
        if value is None:
            yield "stale" if was_there else "_"
        else:
            yield f"{value:.15g}"
        was_there = value is not None


def _key(name: str, labels: Mapping[str, str]) -> str:
    pairs = (f'{label}="{_escaped(text)}"' for label, text in sorted(labels.items()))
    return f"{name}{{{','.join(pairs)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
