"""All engines that are watched, one of which the other panels show."""

from collections.abc import Callable

from kvscope.top.course import latest
from kvscope.top.head import verdict
from kvscope.top.situation import Panel, Situation, WatchedEngine
from kvscope.top.table import Column, Table
from kvscope_exporter import words


def _level(key: str) -> Callable[[WatchedEngine], float | None]:
    return lambda one: latest(one.values, key)


def _state(one: WatchedEngine) -> str:
    return "silent" if one.seen.problem is not None else one.server.state or words.UNKNOWN


COLUMNS = (
    Column("engine", lambda one: one.engine.title, left=True),
    Column("server", lambda one: one.server.server, left=True, left_out=2),
    Column("state", _state, left=True),
    Column("active", _level("active_ratio"), words.share),
    Column("hit rate", _level("hit_ratio"), words.share, left_out=3),
    Column("running", _level("running"), words.count, left_out=1),
    Column("waiting", _level("waiting"), words.count),
    Column("verdict", lambda one: verdict(one)[0], left=True, left_out=4),
)


def _body(situation: Situation, answer: None, width: int) -> tuple[str, Table]:
    note = f"{situation.chosen + 1} of {len(situation.all)} is shown"
    return note, Table(COLUMNS, situation.all, "No engine is known yet.")


ENGINES = Panel("Engines", "Every engine of every server. The key e goes to the next one.", _body)
