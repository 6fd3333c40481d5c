"""Families that panels or rules query and that the catalogue does not have, in rows like its own.

They are families of vLLM's page that ours lacks. A panel that queries one must work without it.
"""

from kvscope_exporter.catalogue import Metric

ELSEWHERE = {
    row.name: row
    for row in (
        Metric(
            name="vllm:admission_rejections_total",
            kind="counter",
            help="Requests refused by a limit of the queue; since vLLM 0.32.",
            unit="requests",
            group="vllm",
            labels={
                "model_name": None,
                "reason": ("max_num_queued_reqs", "max_num_queued_tokens"),
            },
        ),
        Metric(
            name="process_start_time_seconds",
            kind="gauge",
            help="Unix time when the server's process began; not there with several API servers.",
            unit="seconds",
            group="vllm",
            labels={},
        ),
    )
}
"""Rows by name."""
