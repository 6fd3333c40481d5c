"""Service levels: is the promise kept, how fast is its budget used, how long will capacity last,
and what did clients see?"""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards.boards.service_levels import budget, capacity, clients, wall
from dashboards.kit.frame import assemble, every_variable
from dashboards.kit.links import LEVELS


def build() -> db.Dashboard:
    """By model, because users ask for a model; from the raw counters, over any range."""
    return assemble(
        "Service levels",
        LEVELS,
        "By model: is the promise kept, how fast is the error budget used, does capacity last?",
        every_variable(levels="all"),
        [wall.row(), budget.row(), capacity.row(), clients.row()],
        since="now-7d",
    )
