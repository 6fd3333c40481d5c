"""Cuts a growing text at the first stop string, holding back what might be the start of one.

Knuth, Morris and Pratt's search: work proportional to the text, whatever the stop strings are.
"""

from array import array
from collections.abc import Sequence


class StopPattern:
    """A stop string and its fallback positions at a mismatch; shared by all choices."""

    __slots__ = ("_failures", "_stop")

    def __init__(self, stop: str) -> None:
        self._stop = stop
        # [i]: length of the longest beginning of the string that also ends its first i + 1.
        self._failures = array("I", bytes(4 * len(stop)))
        length = 0
        for index in range(1, len(stop)):
            length = self._advance(length, stop[index])
            self._failures[index] = length

    def __len__(self) -> int:
        return len(self._stop)

    def search(self, text: str, matched: int) -> tuple[int, int | None]:
        """Continue after `matched` characters of it.

        Returns how many the text now ends with, and the index after the whole string if it came.
        """
        begin = 0
        if not matched:  # most text does not even hold its first character
            begin = text.find(self._stop[0])
            if begin < 0:
                return 0, None
        for index in range(begin, len(text)):
            matched = self._advance(matched, text[index])
            if matched == len(self._stop):
                return matched, index + 1
        return matched, None

    def _advance(self, matched: int, character: str) -> int:
        while matched and self._stop[matched] != character:
            matched = self._failures[matched - 1]
        return matched + (self._stop[matched] == character)


class StopStrings:
    """Text goes in as it is decoded and comes out as soon as no stop string can begin in it."""

    def __init__(self, patterns: Sequence[StopPattern]) -> None:
        self._patterns = patterns
        self._matched = [0] * len(patterns)
        self._held = ""

    def add(self, text: str) -> tuple[str, bool]:
        """Returns the text that may be shown now, and whether a stop string ended it.

        The first string to be complete ends it; of two at once, the longer.
        """
        if not self._patterns:
            return text, False
        stopped: tuple[int, int] | None = None  # where it ends in `text`, less is better; -length
        for index, pattern in enumerate(self._patterns):
            self._matched[index], end = pattern.search(text, self._matched[index])
            if end is not None:
                found = (end, -len(pattern))
                stopped = found if stopped is None else min(stopped, found)
        held = self._held + text
        if stopped is not None:
            end, length = stopped[0], -stopped[1]
            shown = held[: len(self._held) + end - length]
            self._held = ""
            return shown, True
        cut = len(held) - max(self._matched)
        self._held = held[cut:]
        return held[:cut], False

    def flush(self) -> str:
        """Returns the text held back, when the sequence ends without a stop string."""
        shown, self._held = self._held, ""
        return shown
