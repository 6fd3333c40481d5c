"""Exporter, first row: can the figures be trusted?

All rows select only by server: an engine that has not sent a Hello yet has no model.
"""

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, SECONDS, Q, numbers
from dashboards.kit.queries import SERVER, or_zero, over_range, series, total, worst


def row() -> Row:
    return Row(
        100,
        "Can the numbers be trusted? Green: yes",
        [
            numbers(
                101,
                "Engines not heard",
                "Engines whose events do not arrive, so that their numbers are stale. Not 0: is "
                "the process alive, is the endpoint right? See the runbook KvscopeFiguresWrong.",
                COUNT,
                Q(f"sum(1 - {series('kvscope_source_up', SERVER)})", ""),
                steps=limits.NONE_IS_GOOD,
            ),
            numbers(
                102,
                "State unknown",
                "Engines that have lost batches, or have not yet reported what their pool holds; "
                "series that depend on it are absent until the next snapshot. If one stays, "
                "restart the sidecar; restart the server only at a convenient time, since that "
                "costs its requests.",
                COUNT,
                Q(f"sum(1 - {series('kvscope_source_state_known', SERVER)})", ""),
                steps=limits.NONE_IS_GOOD,
            ),
            numbers(
                103,
                "Longest silence",
                "How long the quietest engine has been silent. If it is minutes although its "
                "server takes requests, find the engine in the table below.",
                SECONDS,
                Q(worst(series("kvscope_source_last_message_age_seconds", SERVER)), ""),
            ),
            numbers(
                104,
                "Furthest behind",
                "Age of the oldest batch that was queued when the page was made. Seconds: the "
                "exporter has too little CPU, and batches will be dropped next.",
                SECONDS,
                Q(worst(series("kvscope_fold_lag_seconds", SERVER)), ""),
                steps=limits.LAG_SECONDS,
            ),
            numbers(
                105,
                "Batches lost",
                "Batches of events lost for good in the time range on screen: counters lack their "
                "contents. Not 0: see below when it happened, and give the exporter more CPU.",
                COUNT,
                Q(total(over_range("kvscope_event_batches_dropped_total", SERVER)), ""),
                steps=limits.NONE_IS_GOOD,
                decimals=0,
            ),
            numbers(
                106,
                "Faults of kvscope",
                "Folds that were disabled and parts of the page that were left out in the time "
                "range on screen; observers that disabled themselves; recorders that cannot write, "
                "as on a full disk. Not 0: the reason is in the log; if it is a bug, please report "
                "it.",
                COUNT,
                Q(total(over_range("kvscope_fold_errors_total", SERVER)), "folds"),
                Q(total(over_range("kvscope_collect_errors_total", SERVER)), "parts of pages"),
                Q(
                    or_zero(
                        f"sum({series('kvscope_observer_stopped', SERVER)})",
                        series("kvscope_source_up", SERVER),
                    ),
                    "observers stopped",
                ),
                Q(f"sum(1 - {series('kvscope_recording_up', SERVER)})", "recorders"),
                steps=limits.NONE_IS_GOOD,
                decimals=0,
            ),
        ],
    )
