"""Start of each cumulative series, which OpenTelemetry requires with every point."""

from collections.abc import Hashable

MAX_SERIES = 20_000
"""Maximum number remembered; beyond it those missing from the last collection are forgotten."""


class Starts:
    """Starts of one server's series. A series that falls has restarted after the previous
    collection.
    """

    def __init__(self, began_ns: int) -> None:
        """began_ns: Unix time from which our own folds count."""
        self.began_ns = began_ns
        self._last_ns = began_ns
        self._known: dict[Hashable, tuple[int, float, int]] = {}  # start, value, last seen

    def start_ns(self, series: Hashable, value: float, now_ns: int, *, is_ours: bool) -> int:
        """The time at which the series was 0.

        is_ours: our folds count it. Otherwise it may have begun long ago, and gets the time of its
        first point: an unknown start in OpenTelemetry's data model.
        """
        known = self._known.get(series)
        if known is None:
            start_ns = self.began_ns if is_ours else now_ns
        elif value < known[1]:
            start_ns = self._last_ns
        else:
            start_ns = known[0]
        self._known[series] = (start_ns, value, now_ns)
        return start_ns

    def end_collection(self, now_ns: int) -> None:
        """Call when all series of this moment have been looked up."""
        self._last_ns = now_ns
        if len(self._known) > MAX_SERIES:
            self._known = {key: seen for key, seen in self._known.items() if seen[2] == now_ns}
