"""Exporter: how each engine is watched, and since when one is not."""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import among
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, PER_SECOND, SECONDS, Q, timeline
from dashboards.kit.queries import (
    BY_ENGINE,
    SERVER,
    over_range,
    rate,
    series,
    total,
    worst,
)
from dashboards.kit.tables import Column, rows

_BY_STREAM = f"{BY_ENGINE}, source, endpoint"


def row() -> Row:
    silence = series("kvscope_source_last_message_age_seconds", SERVER)
    return Row(
        200,
        "Which engine, since when?",
        [
            rows(
                201,
                "Engines that are watched",
                "One line for each stream of events, the longest silence first. A stream without "
                "a model has never been heard: is its endpoint right? Unknown for longer than a "
                "few seconds: restart the sidecar; restart the server only at a convenient time, "
                "since that costs its requests. Lost batches: give the exporter more CPU.",
                Q(worst(series("kvscope_source_up", SERVER), _BY_STREAM), "heard"),
                Q(worst(series("kvscope_source_state_known", SERVER), _BY_STREAM), "known"),
                Q(worst(silence, _BY_STREAM), "silence"),
                Q(worst(series("kvscope_fold_lag_seconds", SERVER), _BY_STREAM), "lag"),
                Q(total(rate("kvscope_events_total", SERVER), _BY_STREAM), "events"),
                Q(total(over_range("kvscope_event_gaps_total", SERVER), _BY_STREAM), "gaps"),
                Q(
                    total(over_range("kvscope_event_batches_dropped_total", SERVER), _BY_STREAM),
                    "lost",
                ),
                columns={
                    "model_name": Column("Model"),
                    "instance": Column("Exporter", width=150),
                    "engine": Column("Engine", width=60),
                    "source": Column("Read from", width=90),
                    "endpoint": Column("Endpoint"),
                    "heard": Column("Stream", meanings=limits.HEARD, width=90),
                    "known": Column("State", meanings=limits.KNOWN, width=90),
                    "silence": Column("Silent for", SECONDS, width=90),
                    "lag": Column("Behind", SECONDS, limits.LAG_SECONDS, width=80),
                    "events": Column("Events", PER_SECOND, width=90),
                    "gaps": Column("Gaps", COUNT, limits.SOME_ARE_WORTH_A_LOOK, width=65),
                    "lost": Column("Lost batches", COUNT, limits.NONE_IS_GOOD, width=105),
                },
                when_absent="No engine is watched.",
                worst_first=("Silent for",),
            ),
            timeline(
                202,
                "Heard of",
                "When the exporter heard from each engine. Not heard: the process has ended, or "
                "the connection between them failed; compare with the server's own log.",
                among(
                    worst(series("kvscope_source_up", SERVER), BY_ENGINE),
                    lowest=True,
                    rank="avg",
                ),
                meanings=limits.HEARD,
                height=6,
                when_absent="No engine in this time range.",
            ),
            timeline(
                203,
                "State known",
                "When the state of each engine was known. While it is not, its gauges are absent "
                "and curves on other boards have gaps; counters continue.",
                among(
                    worst(series("kvscope_source_state_known", SERVER), BY_ENGINE),
                    lowest=True,
                    rank="avg",
                ),
                meanings=limits.KNOWN,
                height=6,
                when_absent="No engine in this time range.",
            ),
        ],
    )
