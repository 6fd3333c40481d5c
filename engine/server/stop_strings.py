"""Cuts a growing text at the first stop string, holding back what might be the start of one."""

from collections.abc import Sequence


class StopStrings:
    """Text goes in as it is decoded and comes out as soon as no stop string can begin in it."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def add(self, text: str) -> tuple[str, bool]:
        """Returns the text that may be shown now, and whether a stop string ended it."""
        if not self._stops:
            return text, False
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            shown, self._held = self._held[: min(found)], ""
            return shown, True
        keep = self._possible_start()
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown, False

    def flush(self) -> str:
        """Returns the text held back, when the sequence ends without a stop string."""
        shown, self._held = self._held, ""
        return shown

    def _possible_start(self) -> int:
        """Length of the longest tail that begins a stop string."""
        longest = 0
        for stop in self._stops:
            for length in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:length]):
                    longest = length
                    break
        return longest
