"""All boards by uid, and their JSON with sorted keys, so that a diff shows only what changed."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard as db
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as dm

from dashboards.kit import links
from kvscope_monitoring.names import not_on_a_lean_page

FOLDER = Path(__file__).parent
NEEDS_FULL = "Needs `--detail full`."
"""The end of a panel's description whose queries read more than a lean page has."""


def _builder(uid: str) -> Callable[[], db.Dashboard]:
    """`dashboards.boards.kv_pool.build` for the uid `kvscope-kv-pool`."""
    package = uid.removeprefix("kvscope-").replace("-", "_")
    build: Callable[[], db.Dashboard] = import_module(f"dashboards.boards.{package}").build
    return build


BOARDS = {uid: _builder(uid) for uid in links.UIDS}
"""Builders by uid, which is also the file's name."""


def as_json(build: Callable[[], db.Dashboard]) -> str:
    board = build().build()
    for each in board.panels or ():
        for panel in each.panels if isinstance(each, dm.RowPanel) else [each]:
            if any(
                not_on_a_lean_page(str(vars(query).get("expr"))) for query in panel.targets or ()
            ):
                panel.description = f"{panel.description} {NEEDS_FULL}"
    return JSONEncoder(sort_keys=True, indent=2).encode(board) + "\n"


def write(folder: Path) -> Iterator[Path]:
    """Write every dashboard into a folder."""
    for uid, build in BOARDS.items():
        path = folder / f"{uid}.json"
        path.write_text(as_json(build))
        yield path
