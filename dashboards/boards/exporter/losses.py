"""Exporter: events received, lost on the way, and unreadable."""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, PER_SECOND, SECONDS, Q, graph
from dashboards.kit.queries import (
    BY_ENGINE,
    SERVER,
    added,
    rate,
    series,
    total,
    worst,
)


def row() -> Row:
    return Row(
        300,
        "What was lost, and why?",
        [
            graph(
                301,
                "Gaps and lost batches",
                "Gaps in the event stream, batches lost for good, and gaps in recordings. "
                "Once: the exporter was stopped or starved at that moment. Often: it needs "
                "more CPU, or a faster disk.",
                COUNT,
                Q(total(added("kvscope_event_gaps_total", SERVER)), "gaps"),
                Q(total(added("kvscope_event_batches_dropped_total", SERVER)), "lost batches"),
                Q(total(added("kvscope_recording_gaps_total", SERVER)), "gaps in recordings"),
                span=6,
            ),
            graph(
                302,
                "How far behind",
                "Age of the oldest batch that was queued when the page was made, by engine. If it "
                "keeps growing, the exporter cannot keep up; give it a core of its own.",
                SECONDS,
                *outstanding(worst(series("kvscope_fold_lag_seconds", SERVER), BY_ENGINE)),
                steps=limits.LAG_SECONDS,
                span=6,
                listed=True,
            ),
            graph(
                303,
                "What could not be read",
                "Messages from other processes, and pages of servers, by what was wrong. Unknown "
                "events: the engine is newer than the exporter. Another contract: update one of "
                "them. A second publisher: two servers share an endpoint. For a page the log says "
                "more. Anything else: please report it.",
                PER_SECOND,
                Q(total(rate("kvscope_event_decode_errors_total", SERVER), "kind"), "{{kind}}"),
                Q(total(rate("kvscope_page_errors_total", SERVER), "kind"), "page: {{kind}}"),
                span=6,
                when_absent="No engine in another process.",
            ),
            graph(
                304,
                "Events received",
                "By type. Lookups without allocations, or steps without requests, would be a bug "
                "in the producer: please report it with this picture.",
                PER_SECOND,
                Q(total(rate("kvscope_events_total", SERVER), "type"), "{{type}}"),
                span=6,
                listed=True,
            ),
        ],
    )
