"""Alert rules tried on the past: samples in, what would have fired out, by promtool."""


class BacktestError(Exception):
    """No result; `str()` names the fault and the remedy."""
