"""The headline numbers of one engine over its last readings, in bounded memory."""

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kvscope.top.headline import HEADLINES, Headline, Mark
from kvscope.top.reading import EngineReading

MAX_VALUES = 240
"""Readings that are kept of each number: more than the bars of a wide screen."""
_MAX_MARKS = 600
"""Marks that are kept of the longest window, whatever the interval."""

Values = Mapping[str, Sequence[float | None]]
"""By the key of a headline number, the oldest first; None: not known at that reading."""


class History:
    """Readings come in order of time; one that is earlier than the last begins again."""

    def __init__(self) -> None:
        self._marks: dict[str, deque[tuple[float, Mark]]] = {}
        self._values: dict[str, deque[float | None]] = {}
        self._at: float | None = None

    def add(self, reading: EngineReading) -> None:
        """A reading of the moment of the last one, as of a paused recording, adds nothing."""
        if self._at is not None and reading.at < self._at:
            self._marks, self._values = {}, {}
        elif reading.at == self._at:
            return
        self._at = reading.at
        for headline in HEADLINES:
            mark = headline.read(reading.figures)
            value = None if mark is None else self._value(headline, reading.at, mark)
            self._values.setdefault(headline.key, deque(maxlen=MAX_VALUES)).append(value)

    def values(self) -> Values:
        """A copy, which another thread may read."""
        return MappingProxyType({key: tuple(values) for key, values in self._values.items()})

    def _value(self, headline: Headline, at: float, mark: Mark) -> float | None:
        over = headline.over
        if over is None:
            return mark[0]
        marks = self._marks.setdefault(headline.key, deque(maxlen=_MAX_MARKS))
        if marks and _has_fallen(mark, marks[-1][1]):
            marks.clear()  # the server was restarted
        # The latest mark that is a whole window old begins it; older ones are of no use.
        while len(marks) > 1 and at - marks[1][0] >= headline.window:
            marks.popleft()
        value = over(mark, marks[0][1], at - marks[0][0]) if marks else None
        marks.append((at, mark))
        return value


def latest(values: Values, key: str) -> float | None:
    known = values.get(key, ())
    return known[-1] if known else None


def _has_fallen(now: Mark, before: Mark) -> bool:
    return len(now) != len(before) or any(n < b for n, b in zip(now, before, strict=True))
