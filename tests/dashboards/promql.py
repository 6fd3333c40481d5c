"""PromQL of panels against what an exporter exposes: names, labels, and how counters are used."""

import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import promql_parser as pp
from prometheus_client.parser import text_string_to_metric_families

Finding = tuple[str, str, str]
"""Code, where, what."""


def panels_of(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Every panel of a dashboard's JSON in order, also those of folded rows; rows before theirs."""
    return [one for panel in board["panels"] for one in (panel, *panel.get("panels", ()))]


SENTINELS = {
    "__rate_interval": "4m13s",
    "__range": "1h1m1s",
    "__interval": "61s",
}
"""The parser does not know Grafana's macros: each becomes a duration that is never written by
hand."""
WINDOWS = {
    timedelta(minutes=4, seconds=13): "rate",
    timedelta(hours=1, minutes=1, seconds=1): "all",
    timedelta(minutes=2): "stall",
    timedelta(hours=1): "burn",
    timedelta(minutes=5): "tile",
}
"""STALL_WINDOW of the board for vLLM, which says why it is the same everywhere; the window of the
alert whose burn rate is drawn; TILE_WINDOW."""
VARIABLE = re.compile(r"\$([a-zA-Z_]\w*)|\$\{(\w+)(?::\w+)?\}")
OF_PROMETHEUS = {"up", "scrape_samples_scraped", "ALERTS", "ALERTS_FOR_STATE"}
OF_THE_TARGET = {"job", "instance", "cluster", "namespace", "pod"}
NUMBERS = {"ttft": "2.5", "itl": "0.5", "objective": "99", "answered": "99.9"} | {
    "first_token": "2.5",  # of a bare vLLM
    "next_token": "0.2",
}
"""Variables that stand for a number, by their defaults; the others are regular expressions."""
RATES = {"rate", "increase"}
LEVEL_COUNTERS = {"kvscope_gpu_remapped_rows_total", "kvscope_gpu_xid_events_total"}
"""Rows replaced in the life of a card; and events of which a rate would miss the first, with which
the series begins."""


class Exposed(NamedTuple):
    """Content of the pages: sample name to type, and to label names."""

    kinds: dict[str, str]
    labels: dict[str, set[str]]


def read(pages: Iterable[str]) -> Exposed:
    """Read expositions in the text format."""
    exposed = Exposed({}, {})
    for page in pages:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                exposed.kinds[sample.name] = family.type
                exposed.labels.setdefault(sample.name, set()).update(sample.labels)
    return exposed


def substitute(expr: str, variables: set[str]) -> str:
    """With macros and variables replaced. Raises ValueError for one that is not declared."""

    def one(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name.isdigit():
            return match[0]  # a group of label_replace
        if name in SENTINELS:
            return SENTINELS[name]
        if name not in variables:
            raise ValueError(f"unknown variable ${name}")
        return NUMBERS.get(name, ".+")

    return VARIABLE.sub(one, expr)


def selectors(node: Any, parents: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Every vector selector with what it stands in, outermost first."""
    if isinstance(node, pp.VectorSelector):
        yield node, parents
    children = [
        getattr(node, key, None) for key in ("vector_selector", "lhs", "rhs", "expr", "param")
    ]
    for child in [*children, *(getattr(node, "args", None) or [])]:
        if isinstance(child, pp.Expr):
            yield from selectors(child, (*parents, node))


def names_in(expr: str, variables: set[str]) -> set[str]:
    """Names of the metrics that a query reads."""
    return {s.name for s, _ in selectors(pp.parse(substitute(expr, variables))) if s.name}


def check_query(
    where: str, expr: str, variables: set[str], exposed: Exposed, *, instant: bool
) -> Iterator[Finding]:
    try:
        parsed = pp.parse(substitute(expr, variables))
    except Exception as error:  # the parser raises nothing more specific
        yield "D-promql", where, f"{error}: {expr}"
        return
    for selector, parents in selectors(parsed):
        name = selector.name
        if name is None:
            yield "D-selector", where, "a selector without a metric name"
        elif name not in OF_PROMETHEUS:
            yield from _check_selector(where, selector, parents, exposed, instant)


def _check_selector(
    where: str, selector: Any, parents: tuple[Any, ...], exposed: Exposed, instant: bool
) -> Iterator[Finding]:
    name = selector.name
    if name not in exposed.kinds:
        yield "D-unknown-metric", where, f"{name} is exported by nobody"
        return
    for matcher in selector.matchers.matchers:
        if matcher.name not in exposed.labels[name] | OF_THE_TARGET:
            yield "D-unknown-label", where, f"{name} has no label {matcher.name}"
    functions = {parent.func.name for parent in parents if isinstance(parent, pp.Call)}
    kind = exposed.kinds[name]
    cumulative = kind in ("counter", "histogram", "summary") and name not in LEVEL_COUNTERS
    if cumulative and not RATES & functions:
        yield "D-counter-agg", where, f"counter {name} without rate or increase"
    if kind == "gauge" and RATES & functions:
        yield "D-rate-on-gauge", where, f"rate of the gauge {name}: use deriv or delta"
    matrix = next((p for p in parents if isinstance(p, pp.MatrixSelector)), None)
    if matrix is None:
        return
    window = WINDOWS.get(matrix.range)
    if window is None:
        yield "D-rate-interval", where, f"{name}: a window of its own, not $__rate_interval"
    elif window == "all" and not (instant or selector.at or "last_over_time" in functions):
        yield "D-range", where, f"{name}: $__range in a query that is drawn over time"
    elif window == "tile" and not instant:
        yield "D-rate-interval", where, f"{name}: the window of tiles in a query that is drawn"
