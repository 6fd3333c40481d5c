"""Overview: can the numbers be trusted?

Streams are selected only by server: an engine that has not sent a Hello yet has no model.
"""

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, PER_SECOND, SECONDS, Q, numbers
from dashboards.kit.queries import (
    BY_ENGINE,
    SERVER,
    or_zero,
    over_range,
    rate,
    series,
    total,
    worst,
)
from dashboards.kit.tables import Column, rows

_BY_STREAM = f"{BY_ENGINE}, source, endpoint"
_SILENCE = series("kvscope_source_last_message_age_seconds", SERVER)


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
                span=24,
                height=3,
            ),
            rows(
                602,
                "Engines that are watched",
                "One line for each stream of events, the longest silence first. A stream without "
                "a model has never been heard: is its endpoint right? Unknown for longer than a "
                "few seconds: restart the sidecar; restart the server only at a convenient time, "
                "since that costs its requests. Lost batches: give the exporter more CPU.",
                Q(worst(series("kvscope_source_up", SERVER), _BY_STREAM), "heard"),
                Q(worst(series("kvscope_source_state_known", SERVER), _BY_STREAM), "known"),
                Q(worst(_SILENCE, _BY_STREAM), "silence"),
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
                    "endpoint": Column("Endpoint", least=330),
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
        ],
    )
