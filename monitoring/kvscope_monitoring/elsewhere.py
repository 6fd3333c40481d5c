"""Families that panels or rules query and that the catalogue does not have, in rows like its own.

They are families of vLLM's page that ours lacks. A panel that queries one must work without it.
"""

from kvscope_exporter.catalogue import Metric
from kvscope_exporter.catalogue.metric import Kind

_ENGINE = {"model_name": None, "engine": None}


def _vllm(name: str, help: str, unit: str, **labels: tuple[str, ...] | None) -> Metric:
    """A family of vLLM's engines; a counter by its name, a gauge otherwise."""
    kind: Kind = "counter" if name.endswith("_total") else "gauge"
    return Metric(
        name=name, kind=kind, help=help, unit=unit, group="vllm", labels={**_ENGINE, **labels}
    )


def _histogram(name: str, help: str, unit: str) -> Metric:
    return Metric(
        name=name, kind="histogram", help=help, unit=unit, group="vllm", labels=dict(_ENGINE)
    )


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
