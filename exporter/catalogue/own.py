"""Self: the exporter's own health. These have no engine labels: they are about this process."""

from typing import get_args

from kvscope_events.events import EngineEvent
from exporter.catalogue.metric import Labels, Metric

SOURCES = ("inprocess",)
FOLDS = (
    "ledger",
    "churn",
    "prefix",
    "preemption",
    "requests",
    "latency",
    "steps",
    "exhaustion",
    "device_memory",
    "census",
    "vllm",
)

_BY_SOURCE: Labels = {"source": SOURCES}
_BY_FOLD: Labels = {"fold": FOLDS}

SELF = (
    Metric(
        name="kvscope_source_up",
        kind="gauge",
        help="Whether the exporter is reading the source.",
        unit="",
        group="self",
        labels=_BY_SOURCE,
        otel_name="kvscope.source.up",
    ),
    Metric(
        name="kvscope_source_state_known",
        kind="gauge",
        help="Whether the state behind the source is known; 0 from lost batches to a snapshot.",
        unit="",
        group="self",
        labels=_BY_SOURCE,
        otel_name="kvscope.source.state_known",
    ),
    Metric(
        name="kvscope_source_last_message_timestamp_seconds",
        kind="gauge",
        help="Unix time of the last batch from the source; absent before the first.",
        unit="seconds",
        group="self",
        labels=_BY_SOURCE,
        otel_name="kvscope.source.last_message.timestamp",
    ),
    Metric(
        name="kvscope_events_total",
        kind="counter",
        help="Events received, by type.",
        unit="events",
        group="self",
        labels={"type": tuple(event.__name__ for event in get_args(EngineEvent))},
        otel_name="kvscope.events",
    ),
    Metric(
        name="kvscope_event_batches_dropped_total",
        kind="counter",
        help="Batches lost because the exporter's queue was full.",
        unit="batches",
        group="self",
        labels=_BY_SOURCE,
        otel_name="kvscope.event.batches_dropped",
    ),
    Metric(
        name="kvscope_event_gaps_total",
        kind="counter",
        help="Times that batches were missing; what depends on them was unknown until a snapshot.",
        unit="gaps",
        group="self",
        labels=_BY_SOURCE,
        otel_name="kvscope.event.gaps",
    ),
    Metric(
        name="kvscope_fold_seconds_total",
        kind="counter",
        help="Time spent folding events, by fold.",
        unit="seconds",
        group="self",
        labels=_BY_FOLD,
        otel_name="kvscope.fold.time",
    ),
    Metric(
        name="kvscope_fold_errors_total",
        kind="counter",
        help="Folds that raised and were given up, so that their families are absent: a bug.",
        unit="errors",
        group="self",
        labels=_BY_FOLD,
        otel_name="kvscope.fold.errors",
    ),
    Metric(
        name="kvscope_fold_lag_seconds",
        kind="gauge",
        help="Age of the oldest batch that the last drain found queued; 0 when it found none.",
        unit="seconds",
        group="self",
        labels={},
        otel_name="kvscope.fold.lag",
    ),
    Metric(
        name="kvscope_scrape_duration_seconds",
        kind="gauge",
        help="Duration of the scrape before this one; absent at the first.",
        unit="seconds",
        group="self",
        labels={},
        otel_name="kvscope.scrape.duration",
    ),
    Metric(
        name="kvscope_build_info",
        kind="info",
        help="The version of kvscope and of the Python that runs it.",
        unit="",
        group="self",
        labels={"version": None, "python": None},
    ),
)
