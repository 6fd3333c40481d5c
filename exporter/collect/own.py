"""Families of the exporter itself."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from prometheus_client.core import Metric as Family

from exporter.collect.families import Families
from exporter.fold import Census
from exporter.pipeline import Pipeline
from exporter.sources import Source


def build_version() -> str:
    """Of the installed distribution; `unknown` in a bare checkout."""
    try:
        return version("kvscope")
    except PackageNotFoundError:
        return "unknown"


def collect_source(families: Families, source: Source, up: bool) -> Iterator[Family]:
    def by_source(name: str, value: float) -> Family:
        return families.column(name, {source.name: value})

    yield by_source("kvscope_source_up", up)
    yield by_source("kvscope_source_state_known", source.state_known)
    if source.last_message_ns is not None:
        yield by_source(
            "kvscope_source_last_message_timestamp_seconds", families.wall(source.last_message_ns)
        )
    yield by_source("kvscope_event_batches_dropped_total", source.batches_dropped)
    yield by_source("kvscope_event_gaps_total", source.gaps)


def collect_census(families: Families, census: Census) -> Iterator[Family]:
    counts = {event.__name__: count for event, count in census.counts.items()}
    yield families.column("kvscope_events_total", counts)


def collect_pipeline(families: Families, pipeline: Pipeline) -> Iterator[Family]:
    yield families.column("kvscope_fold_seconds_total", pipeline.spent_seconds)
    yield families.column("kvscope_fold_errors_total", pipeline.errors)
    yield families.single("kvscope_fold_lag_seconds", pipeline.lag_seconds)


def collect_build(families: Families, build: str) -> Iterator[Family]:
    yield families.fact(
        "kvscope_build_info", {"version": build, "python": platform.python_version()}
    )
