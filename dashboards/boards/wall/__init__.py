"""Wall display: is the service well? For its users, without technical terms."""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards.boards.wall import by_model, history, now
from dashboards.kit.frame import assemble, every_variable
from dashboards.kit.links import WALL


def build() -> db.Dashboard:
    """Readable from across a room; a link in kiosk mode (`&kiosk`) hides the menus."""
    return assemble(
        "Wall display",
        WALL,
        "Is the service up, how fast does it answer, how well, and how long is the queue?",
        every_variable(levels="first token"),
        [now.row(), history.row(), by_model.row()],
        since="now-3h",
    )
