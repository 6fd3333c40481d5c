"""All recordings behind each other, so that a server's day is a list of positions in them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tools.fleet.recording import Floats, Key, Recording


@dataclass(frozen=True)
class Library:
    """Numbers by series and position; NaN: the series is not on that page."""

    counters: dict[Key, Floats]
    gauges: dict[Key, Floats]
    ages: dict[Key, Floats]
    places: dict[str, range]
    """Positions of each recording."""


def library(recordings: Mapping[str, Recording], wanted: Callable[[Key], bool]) -> Library:
    """Recordings of the wanted series."""
    places, end = {}, 0
    for name, recording in recordings.items():
        places[name] = range(end, end + recording.steps)
        end += recording.steps

    def joined(tables: Iterable[tuple[range, dict[Key, Floats]]]) -> dict[Key, Floats]:
        whole: dict[Key, Floats] = {}
        for place, table in tables:
            for key in filter(wanted, table):
                numbers = whole.setdefault(key, np.full(end, np.nan))
                numbers[place.start : place.stop] = table[key]
        return whole

    pairs = [(places[name], recording) for name, recording in recordings.items()]
    return Library(
        joined((place, recording.counters) for place, recording in pairs),
        joined((place, recording.gauges) for place, recording in pairs),
        joined((place, recording.ages) for place, recording in pairs),
        places,
    )
