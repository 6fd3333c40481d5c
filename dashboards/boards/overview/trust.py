"""Overview: can the numbers be trusted?

Streams are selected only by server: an engine that has not sent a Hello yet has no model.
"""

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, PER_SECOND, RATIO, SECONDS, Q, graph, numbers
from dashboards.kit.queries import BY_ENGINE, SERVER, or_zero, rate, series, total, worst


def _costliest(counter: str) -> str:
    """The rates by fold, of the engine whose sum is highest."""
    each = rate(counter)
    return f"{each} and on ({BY_ENGINE}) topk(1, {total(each, BY_ENGINE)})"


def row() -> Row:
    return Row(
        600,
        "Can these numbers be trusted?",
        [
            numbers(
                601,
                "Missing or wrong? Must be 0",
                "Out of balance: blocks by which the replayed events differ from the engine's own "
                "counts; a bug, keep the log and report it. Sources down: engines that the "
                "exporter does not hear, so that their numbers are stale; see the runbook "
                "KvscopeFiguresWrong. State unknown: batches were lost; what depends on them is "
                "absent until the next snapshot. If one stays, restart the sidecar; restart the "
                "server only at a convenient time, since that costs its requests. Observers "
                "stopped: the observer in a vLLM has switched itself off; the server is unharmed, "
                "see the runbook KvscopeFiguresWrong.",
                COUNT,
                Q(
                    worst(f"abs({series('kvscope_kv_ledger_imbalance_blocks')})"),
                    "out of balance",
                ),
                Q(f"sum(1 - {series('kvscope_source_up', SERVER)})", "sources down"),
                Q(f"sum(1 - {series('kvscope_source_state_known', SERVER)})", "state unknown"),
                Q(
                    or_zero(
                        f"sum({series('kvscope_observer_stopped', SERVER)})",
                        series("kvscope_source_up", SERVER),
                    ),
                    "observers stopped",
                ),
                steps=limits.NONE_IS_GOOD,
                span=6,
                height=7,
            ),
            graph(
                604,
                "Events lost",
                "Batches dropped because the exporter was too slow, gaps that it saw, folds and "
                "parts of the page that failed, messages that it could not read. If any is not 0, "
                "give the process more CPU, or report the error.",
                PER_SECOND,
                Q(total(rate("kvscope_event_batches_dropped_total", SERVER)), "batches dropped"),
                Q(total(rate("kvscope_event_gaps_total", SERVER)), "gaps"),
                Q(total(rate("kvscope_fold_errors_total", SERVER)), "failed folds"),
                Q(total(rate("kvscope_event_decode_errors_total", SERVER)), "unreadable"),
                Q(total(rate("kvscope_collect_errors_total", SERVER)), "failed parts"),
                span=6,
                height=7,
                listed=True,
            ),
            graph(
                605,
                "How far behind is the exporter?",
                "Age of the oldest event that was queued, time to render the page, age of the last "
                "message from an engine. A lag of seconds: batches will be dropped next.",
                SECONDS,
                Q(worst(series("kvscope_fold_lag_seconds", SERVER)), "lag"),
                Q(worst(series("kvscope_scrape_duration_seconds", SERVER)), "page"),
                Q(
                    worst(series("kvscope_source_last_message_age_seconds", SERVER)),
                    "last message",
                ),
                span=6,
                height=7,
                steps=limits.LAG_SECONDS,
                listed=True,
            ),
            graph(
                606,
                "What the exporter costs",
                "CPU spent on events, by fold, as a share of one core, for the engine where it is "
                "highest at the moment. Above a tenth it competes with an engine in the same "
                "process: report it.",
                RATIO,
                Q(total(_costliest("kvscope_fold_seconds_total"), "fold"), "{{fold}}"),
                stacked=True,
                span=6,
                height=7,
                listed=True,
            ),
        ],
    )
