"""Memory and OOM risk: where all the bytes are, and the three ways to run out of them."""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards.boards.memory import advice, allocator, hardware, modes, sizing, verdict, where
from dashboards.kit.frame import assemble, every_variable
from dashboards.kit.links import MEMORY


def build() -> db.Dashboard:
    """One card or all; choose a GPU to see its card alone."""
    return assemble(
        "Memory and OOM risk",
        MEMORY,
        "Where every byte of the card went, and how far each of three kinds of running out is.",
        every_variable(gpu=True),
        [
            verdict.row(),
            modes.row(),
            where.row(),
            sizing.row(),
            allocator.row(),
            hardware.row(),
            advice.row(),
        ],
    )
