"""Overview: the fleet. Is anything wrong, what, since when, why, and what to do about it."""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards.boards.overview import advice, since_when, trust, verdict, what, why
from dashboards.kit.frame import assemble, every_variable
from dashboards.kit.links import OVERVIEW


def build() -> db.Dashboard:
    """The home dashboard."""
    return assemble(
        "Overview",
        OVERVIEW,
        "All engines at a glance: is anything wrong, what, since when, why, and what to do.",
        every_variable(levels="first token"),
        [verdict.row(), what.row(), since_when.row(), why.row(), advice.row(), trust.row()],
    )
