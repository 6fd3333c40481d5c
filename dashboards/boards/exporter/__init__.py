"""Exporter: are my engines watched, and can I trust what the other boards show?"""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards.boards.exporter import cost, losses, streams, verdict
from dashboards.kit.frame import assemble, every_variable
from dashboards.kit.links import EXPORTER


def build() -> db.Dashboard:
    """The board about kvscope itself."""
    return assemble(
        "Exporter",
        EXPORTER,
        "Whether every engine is watched, what was lost on the way, and what watching costs.",
        every_variable(),
        [verdict.row(), streams.row(), losses.row(), cost.row()],
    )
