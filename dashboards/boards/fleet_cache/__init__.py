"""Fleet cache: whose fault are the misses: the router's, the size's, or that of new prompts?"""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards.boards.fleet_cache import advice, content, replicas, tier, trust, waterfall
from dashboards.boards.fleet_cache.figures import fleet_variable
from dashboards.kit.frame import assemble, every_variable
from dashboards.kit.links import FLEET_CACHE


def build() -> db.Dashboard:
    """The caches of all replicas of a model as one; from the page of `kvscope fleet`."""
    return assemble(
        "Fleet cache",
        FLEET_CACHE,
        "What the replicas' caches find together, and what the router, their number, their size "
        "and a missing shared tier each cost. From the page of `kvscope fleet`.",
        [fleet_variable(), *every_variable()],
        [
            waterfall.row(),
            tier.row(),
            replicas.row(),
            content.row(),
            trust.row(),
            advice.row(),
        ],
        since="now-3h",
    )
