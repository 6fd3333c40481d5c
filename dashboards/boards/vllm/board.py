"""vLLM: a vLLM without kvscope, by its own metric names.

The same JSON works with kvscope's own engine, which serves these names as well. Where vLLM renamed
a metric, both names are queried (0.8 to now)."""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards.boards.vllm import (
    experience,
    limits_of_vllm,
    optional,
    pool,
    verdict,
    where,
    work,
)
from dashboards.kit.frame import assemble, engine_variables
from dashboards.kit.links import VLLM


def build() -> db.Dashboard:
    """A dashboard for users who have installed nothing of kvscope but this JSON."""
    return assemble(
        "vLLM",
        VLLM,
        "A vLLM without kvscope, by its own metrics. The other dashboards show what they lack.",
        _variables(),
        [
            verdict.row(),
            where.row(),
            pool.row(),
            experience.row(),
            work.row(),
            optional.row(),
            limits_of_vllm.row(),
        ],
        alerts='alertname=~"(Kvscope|Vllm).+"',
    )


def _variables() -> list[db.QueryVariable]:
    """All engines are also those without the label, which vLLM did not always have."""
    model, server, engine = engine_variables("vllm:num_requests_running")
    return [model, server, engine.all_value(".*")]
