"""Families about a server and its exporter: state, sources, cost, build."""

import platform
from collections.abc import Collection, Iterator

import msgspec
from prometheus_client.core import Metric as Family

from kvscope_exporter.catalogue.server import SERVER_STATES, ServerState
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.families import NO_ENGINE, Families
from kvscope_exporter.sources import SourceStatus
from kvscope_exporter.sources.pipeline import Pipeline
from kvscope_exporter.state import EventCounts, HelloTracker


class RecorderHealth(msgspec.Struct, frozen=True, array_like=True):
    """State of the flight recorder itself."""

    up: bool
    """Whether it keeps what arrives."""
    gaps: int
    """Times that it could not, since it began."""


def collect_server(families: Families, state: ServerState | None) -> Iterator[Family]:
    """Empty if no server is watched."""
    if state is not None:
        yield families.table(
            "kvscope_server_state", {(known,): known == state for known in SERVER_STATES}
        )


def collect_unheard(endpoints: Collection[str], clock: Clock) -> Iterator[Family]:
    """endpoints: where nothing has ever been heard of a server that takes requests."""
    for endpoint in endpoints:
        families = Families({"source": "wire", "endpoint": endpoint}, clock)
        yield families.table("kvscope_source_up", {NO_ENGINE: False})


def collect_recording(families: Families, health: RecorderHealth | None) -> Iterator[Family]:
    """Empty if nothing is recorded."""
    if health is not None:
        yield families.single("kvscope_recording_up", health.up)
        yield families.single("kvscope_recording_gaps_total", health.gaps)


def collect_source(families: Families, source: SourceStatus, running: bool) -> Iterator[Family]:
    yield families.single("kvscope_source_up", running and source.up)
    yield families.single("kvscope_source_state_known", source.state_known)
    if source.last_message_ns is not None:
        yield families.single(
            "kvscope_source_last_message_age_seconds", families.age(source.last_message_ns)
        )
    yield families.single("kvscope_event_batches_dropped_total", source.batches_dropped)
    yield families.single("kvscope_event_gaps_total", source.gaps)
    if source.decode_errors:
        yield families.column("kvscope_event_decode_errors_total", source.decode_errors)


def collect_observer(
    families: Families, introduction: HelloTracker, tells: frozenset[str]
) -> Iterator[Family]:
    """Empty for a producer that never stops observing."""
    stopped = introduction.stopped is not None
    if stopped or "ObserverStopped" in tells:
        yield families.single("kvscope_observer_stopped", stopped)


def collect_census(
    families: Families, census: EventCounts, tells: frozenset[str]
) -> Iterator[Family]:
    """Counts of the events that the engine can report, and of any others that arrived."""
    counts = {event.__name__: count for event, count in census.counts.items()}
    shown = {name: count for name, count in counts.items() if count or name in tells}
    if shown:
        yield families.column("kvscope_events_total", shown)


def collect_pipeline(
    families: Families, pipeline: Pipeline, only: Collection[str] | None = None
) -> Iterator[Family]:
    """only: the folds whose errors count; None: all."""
    failed = sum(n for fold, n in pipeline.errors.items() if only is None or fold in only)
    yield families.single("kvscope_fold_errors_total", failed)
    yield families.single("kvscope_fold_lag_seconds", pipeline.lag_seconds)


def collect_build(families: Families, build: str) -> Iterator[Family]:
    yield families.fact(
        "kvscope_build_info", {"version": build, "python": platform.python_version()}
    )
