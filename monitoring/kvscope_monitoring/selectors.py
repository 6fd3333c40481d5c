"""Selectors from the catalogue: a typo in a name or a label raises KeyError."""

from kvscope_exporter.catalogue import Metric, metric
from kvscope_monitoring.elsewhere import ELSEWHERE

_HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")


def series(name: str, selector: str = "", **labels: str | tuple[str, ...]) -> str:
    """A selector with matchers for `labels`, followed by `selector` as it is.

    labels: one value or several, which the catalogue or ELSEWHERE must have. Samples of histograms
    are named with their suffix: `kvscope_step_duration_seconds_bucket`.
    """
    row = _row(name)
    matchers = [_matcher(row, label, wanted) for label, wanted in labels.items()]
    inner = ",".join(part for part in (*matchers, selector) if part)
    return f"{name}{{{inner}}}" if inner else name


def rate(name: str, window: str, selector: str = "", **labels: str | tuple[str, ...]) -> str:
    """Growth per second over the window."""
    return f"rate({series(name, selector, **labels)}[{window}])"


def bucket(name: str, bound: float, selector: str = "") -> str:
    """The bucket of a histogram with this upper bound, which the histogram must have.

    Prometheus 2 writes a whole bound as `5`, Prometheus 3 as `5.0`; the selector matches both.
    """
    row = metric(name)
    if bound not in (row.buckets or ()):
        known = ", ".join(f"{known:g}" for known in row.buckets or ())
        raise KeyError(f"{name} has no bucket of {bound:g}; it has {known}")
    whole = float(bound).is_integer()
    matcher = f'le=~"{bound:g}([.]0)?"' if whole else f'le="{bound:g}"'
    return f"{name}_bucket{{{','.join(part for part in (matcher, selector) if part)}}}"


def _matcher(row: Metric, label: str, wanted: str | tuple[str, ...]) -> str:
    values = (wanted,) if isinstance(wanted, str) else wanted
    closed = row.closed_labels.get(label)
    for value in values:
        if label not in row.labels or (closed is not None and value not in closed):
            raise KeyError(f"{row.name} has no {label}={value!r}")
    return f'{label}{"=" if len(values) == 1 else "=~"}"{"|".join(values)}"'


def _row(name: str) -> Metric:
    return _declared(_family(name))


def _declared(family: str) -> Metric:
    return ELSEWHERE[family] if family in ELSEWHERE else metric(family)


def _family(name: str) -> str:
    """The family's name for a sample of a histogram; any other name as it is."""
    for suffix in _HISTOGRAM_SUFFIXES:
        base = name.removesuffix(suffix)
        if base != name:
            try:
                row = _declared(base)
            except KeyError:
                continue
            if row.kind in ("histogram", "summary"):
                return base
    return name
