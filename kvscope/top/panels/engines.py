"""All engines that are watched, one of which the other panels show."""

from exporter import words
from kvscope.top.course import latest
from kvscope.top.panels.why import verdict
from kvscope.top.situation import Panel, Situation, Watched
from kvscope.top.table import Column, Table
from kvscope_events.printable import quoted


def _level(key: str, watched: Watched) -> float | None:
    return latest(watched.values, key)


def _state(watched: Watched) -> str:
    if watched.seen.problem is not None:
        return "silent"
    return watched.server.state or words.UNKNOWN


COLUMNS = (
    Column(title="engine", cell=lambda one: one.engine.title, right=False),
    Column(title="server", cell=lambda one: quoted(one.server.server), right=False, left_out=2),
    Column(title="state", cell=_state, right=False),
    Column(
        title="active",
        cell=lambda one: words.share(_level("active_ratio", one)),
        order=lambda one: _level("active_ratio", one),
    ),
    Column(
        title="hit rate",
        cell=lambda one: words.share(_level("hit_ratio", one)),
        order=lambda one: _level("hit_ratio", one),
        left_out=3,
    ),
    Column(
        title="running",
        cell=lambda one: words.count(_level("running", one)),
        order=lambda one: _level("running", one),
        left_out=1,
    ),
    Column(
        title="waiting",
        cell=lambda one: words.count(_level("waiting", one)),
        order=lambda one: _level("waiting", one),
    ),
    Column(title="verdict", cell=lambda one: verdict(one)[0], right=False, left_out=4),
)


def _body(situation: Situation, width: int) -> Table:
    return Table(columns=COLUMNS, rows=list(situation.all), empty="No engine is known yet.")


ENGINES = Panel(
    key="engines",
    title="Engines",
    help="Every engine of every server. The key e goes to the next one.",
    least=3,
    most=60,
    note=lambda situation: f"{situation.chosen + 1} of {len(situation.all)} is shown",
    body=_body,
)
