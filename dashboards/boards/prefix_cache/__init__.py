"""Prefix cache: what it found, what it missed and why, and what a larger one would have found."""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards.boards.prefix_cache import (
    advice,
    fleet,
    groups,
    misses,
    pool,
    prefixes,
    since_when,
    verdict,
    whatif,
)
from dashboards.boards.prefix_cache.fleet_figures import fleet_variable
from dashboards.kit.frame import assemble, every_variable
from dashboards.kit.links import PREFIX_CACHE


def build() -> db.Dashboard:
    """The cache of one engine or of all."""
    return assemble(
        "Prefix cache",
        PREFIX_CACHE,
        "What the prefix cache saved, what it missed, and whether more memory would help.",
        [fleet_variable(), *every_variable(engine=True)],
        [
            verdict.row(),
            misses.row(),
            whatif.row(),
            pool.row(),
            prefixes.row(),
            groups.row(),
            since_when.row(),
            fleet.row(),
            advice.row(),
        ],
    )
