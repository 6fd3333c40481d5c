"""The exporter's own health: how it reads each engine, and what its pages cost.

Families about one engine's stream carry that engine's labels, so that they can be joined with it;
until the engine's first Hello, and for a server's own page, which has several engines, `model_name`
and `engine` are left out.
"""

from typing import Literal, get_args

from kvscope_events.events import EVENT_NAMES
from kvscope_events.wire.frame import DECODE_ERROR_KINDS
from kvscope_exporter.catalogue.metric import ENGINE, Kind, Labels, Metric
from kvscope_exporter.fetch.error import FETCH_ERROR_KINDS
from kvscope_exporter.sources.attachments import REMOTE, SourceKind

PAGE_ERROR_KINDS = (
    *FETCH_ERROR_KINDS,
    *("not_metrics", "unknown_server", "nothing_read"),
    *("malformed", "contradictory", "engines", "bug"),
)
"""Kinds of failures of a server's own page."""

EnginePart = Literal["scheduler", "worker", "front_end"]
"""The processes of an engine, as its figures distinguish them."""

_OF_ALL_ENDPOINTS = ("observer_stopped", "fold_errors_total")
_LEAN = ("source_up", "event_batches_dropped_total", *_OF_ALL_ENDPOINTS)
_STREAM: Labels = {**ENGINE, "source": (*get_args(SourceKind), REMOTE), "endpoint": None}


def _stream(
    name: str,
    help: str,
    *,
    kind: Kind = "gauge",
    unit: str = "",
    labels: Labels | None = None,
    notes: str = "",
) -> Metric:
    """A row about one engine's stream of events."""
    return Metric(
        name=f"kvscope_{name}",
        kind=kind,
        help=help,
        notes=notes,
        unit=unit,
        group="self",
        detail="lean" if name in _LEAN else "full",
        lean_without=("endpoint",) if name in _OF_ALL_ENDPOINTS else (),
        labels={**_STREAM, **(labels or {})},
        otel_name=f"kvscope.{name.removesuffix('_total').replace('_', '.', 1)}",
    )


SELF = (
    _stream(
        "source_up",
        "Whether the server reports: 1 while events arrive or its metrics can be read.",
        notes="Engines are counted by it. 0 for a folder of sockets, `ipc:///FOLDER/*`: the server "
        "takes requests, and no socket there has answered. source=remote: workers, or a front end, "
        "of an engine that is counted on another host's page.",
    ),
    _stream(
        "source_state_known",
        "Whether the engine's state is known; 0 before the first snapshot and after lost events.",
    ),
    _stream(
        "source_last_message_age_seconds",
        "Time since the last message of the engine, or since its metrics were last read.",
        notes="Absent before the first.",
        unit="seconds",
    ),
    _stream(
        "observer_stopped",
        "Whether the observer in the server has disabled itself; both processes log the reason.",
        notes="The server goes on, and the families about the engine are absent until it is "
        "restarted. Absent for kvscope's own engine, which needs no observer.",
    ),
    _stream(
        "events_total",
        "Events received, by type.",
        kind="counter",
        unit="events",
        labels={"type": EVENT_NAMES},
    ),
    _stream(
        "event_batches_dropped_total",
        "Batches of events that were lost for good.",
        kind="counter",
        unit="batches",
    ),
    _stream(
        "event_gaps_total",
        "Times that batches were missing; the state is unknown until they, or a snapshot, arrive.",
        kind="counter",
        unit="gaps",
    ),
    _stream(
        "event_decode_errors_total",
        "Frames or events from another process that could not be used, by kind.",
        kind="counter",
        unit="errors",
        labels={"kind": DECODE_ERROR_KINDS},
        notes="Kinds: an event that this version does not know, a malformed or too large frame, "
        "another version of the contract, a second publisher on the endpoint.",
    ),
    _stream(
        "page_errors_total",
        "Failures to read a server's own page, or a part of it, by kind.",
        kind="counter",
        unit="errors",
        labels={"kind": PAGE_ERROR_KINDS},
        notes="The page could not be fetched, is not of a known server (not_metrics, "
        "unknown_server), gives no value of any family (nothing_read), has lines or series that "
        "cannot be used (malformed, contradictory) or too many engines, or the exporter has a bug.",
    ),
    _stream(
        "fold_errors_total",
        "Metric processors disabled by an exception; their metrics are absent. Always a bug.",
        kind="counter",
        unit="errors",
    ),
    _stream(
        "fold_lag_seconds",
        "Age of the oldest batch that the last drain found queued; 0 when it found none.",
        unit="seconds",
    ),
    Metric(
        name="kvscope_recording_up",
        kind="gauge",
        help="Whether the flight recorder works; 0 while it cannot write.",
        notes="Absent where nothing is recorded (`--keep 0`). A disk that has room again within a "
        "few seconds costs nothing; after that the recording has a gap.",
        unit="",
        group="self",
        detail="full",
        labels={},
        otel_name="kvscope.recording.up",
    ),
    Metric(
        name="kvscope_recording_gaps_total",
        kind="counter",
        help="Times that the flight recorder could not keep what arrived.",
        notes="The log has the reason, and so have the recording itself, which every command that "
        "reads it repeats, and `GET /api/recordings`.",
        unit="gaps",
        group="self",
        detail="full",
        labels={},
        otel_name="kvscope.recording.gaps",
    ),
    Metric(
        name="kvscope_engine_silence_seconds",
        kind="gauge",
        help="Time since a part of a ready engine last reported; the longest of all parts.",
        notes="Every part is heard each second, also while the engine idles: after a minute it "
        "hangs or has ended. Absent while the engine loads, after another start of its server, "
        "once the server is gone, and while its observer is off.",
        unit="seconds",
        group="server",
        labels={**ENGINE, "part": get_args(EnginePart)},
        otel_name="kvscope.engine.silence",
    ),
    Metric(
        name="kvscope_collect_errors_total",
        kind="counter",
        help="Times that a part of the page raised and was left out: a bug, which the log names.",
        unit="errors",
        group="self",
        labels={},
        otel_name="kvscope.collect.errors",
    ),
    Metric(
        name="kvscope_scrape_duration_seconds",
        kind="gauge",
        help="Time that it took to render the previous page; absent on the first page.",
        unit="seconds",
        group="self",
        detail="full",
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
    Metric(
        name="kvscope_config_last_reload_successful",
        kind="gauge",
        help="Whether the configuration file was valid when last read; if 0 the previous one is "
        "used.",
        unit="",
        group="self",
        labels={},
        otel_name="kvscope.config.last_reload_successful",
    ),
)
