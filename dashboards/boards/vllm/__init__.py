"""vLLM: a vLLM without kvscope, by its own metric names.

The same JSON works with kvscope's own engine, which serves these names as well. Where vLLM renamed
a metric, both names are queried (0.8 to now)."""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards.boards.vllm import (
    experience,
    limits_of_vllm,
    pool,
    verdict,
    where,
    work,
)
from dashboards.boards.vllm.series import FIRST_TOKEN, NEXT_TOKEN
from dashboards.kit.frame import Variable, assemble, engine_variables
from dashboards.kit.links import VLLM
from dashboards.kit.variables import choice
from kvscope_exporter.state.buckets import VLLM_FIRST_TOKEN_SECONDS, VLLM_INTER_TOKEN_SECONDS

FIRST_TOKEN_SECONDS, NEXT_TOKEN_SECONDS = 2.5, 0.2
"""Default promises: limits of the alerts for such a server."""


def build() -> db.Dashboard:
    """A dashboard for users who have installed nothing from kvscope except this JSON."""
    return assemble(
        "vLLM",
        VLLM,
        "A vLLM without kvscope, by its own metrics. The other dashboards show what these lack.",
        _variables(),
        [
            verdict.row(),
            where.row(),
            pool.row(),
            experience.row(),
            work.row(),
            limits_of_vllm.row(),
        ],
        alerts='alertname=~"(Kvscope|Vllm).+"',
    )


def _variables() -> list[Variable]:
    """All engines include those without the label, which vLLM did not always have."""
    model, server, engine = engine_variables("vllm:num_requests_running", engine=False)
    return [
        *(model, server, engine.all_value(".*")),
        choice(
            FIRST_TOKEN,
            "TTFT target",
            [f"{bound:g}" for bound in VLLM_FIRST_TOKEN_SECONDS],
            f"{FIRST_TOKEN_SECONDS:g}",
            "Seconds; the bounds that vLLM's histogram has.",
        ),
        choice(
            NEXT_TOKEN,
            "ITL target",
            [f"{bound:g}" for bound in VLLM_INTER_TOKEN_SECONDS],
            f"{NEXT_TOKEN_SECONDS:g}",
            "Seconds; the bounds that vLLM's histogram has.",
        ),
    ]
