"""KV pool: one engine in depth. Who holds the blocks, how they turn over, what pressure costs."""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards.boards.kv_pool import (
    cost,
    forecast,
    holders,
    optional,
    steps,
    verdict,
)
from dashboards.kit.frame import assemble, every_variable
from dashboards.kit.links import KV_POOL


def build() -> db.Dashboard:
    """One engine; with several selected, counts are sums, and ratios are shown by engine."""
    return assemble(
        "KV pool",
        KV_POOL,
        "One engine's KV pool: will it fill, who holds its blocks, what did pressure cost?",
        every_variable(levels="first token", engine=True),
        [
            verdict.row(),
            forecast.row(),
            holders.row(),
            cost.row(),
            steps.row(),
            optional.row(),
        ],
    )
