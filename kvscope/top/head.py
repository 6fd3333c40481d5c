"""The lines above the panels: verdict, engine, trouble, pool, headline numbers."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from kvscope.top.follower import PlaceStatus
from kvscope.top.headline import HEADLINES, Headline
from kvscope.top.pool_strip import legend_of, parts, strip
from kvscope.top.reading import UnknownAnswer
from kvscope.top.situation import Situation, WatchedEngine, wrapped
from kvscope_events.printable import one_line, quoted
from kvscope_exporter import words
from kvscope_exporter.answers.diagnosis.question import WHY

_BARS = "▁▂▃▄▅▆▇█"
_LABEL, _FIGURE, _SPARK = 10, 7, 7
_CELL = _LABEL + _FIGURE + 1 + _SPARK


def head(
    places: Sequence[PlaceStatus], situation: Situation, width: int, pace: str, most: int = 1000
) -> list[Text]:
    """pace: said beside the time of a live server. most: lines of the verdict."""
    if not situation.all:
        asked = [seen for seen in places if not seen.servers and seen.problem is None]
        lines = [Text(f"Asking {quoted(seen.place)} …", "bold") for seen in asked]
        lines += [Text("No engine is known yet.", "bold")] if len(asked) < len(places) else []
        return lines + [line for seen in places for line in trouble(seen, width)]
    here = situation.here
    sentence, style = verdict(here)
    lines = wrapped(sentence, width, "bold", indent=2)
    if len(lines) > most:
        lines = [*lines[: most - 1], Text(f"{lines[most - 1].plain[: width - 2]} …", "bold")]
    lines[0].stylize(style, 0, 1)
    others = [line for seen in places if seen is not here.seen for line in trouble(seen, width)]
    title = _title(here, len(situation.all), width, pace)
    return [*trouble(here.seen, width), *lines, title, *others, *_pool(here, width)]


def verdict(watched: WatchedEngine) -> tuple[str, str]:
    """The sentence behind its sign, and the style of the sign."""
    answer = watched.engine.answers[WHY.name]
    if isinstance(answer, UnknownAnswer):
        return f"? No verdict: {one_line(answer.reason)}", ""
    if not answer.chain:
        return f"✔ {one_line(answer.sentence)}", "green"
    return f"▲ {one_line(answer.sentence)}", "red"


def _title(here: WatchedEngine, number: int, width: int, pace: str) -> Text:
    """The engine on the left; the moment on the right."""
    left = Text().append(here.engine.title, "bold")
    if here.server.state and here.server.state != "ready":
        left.append(f" · {here.server.state}", "bold red")
    left.append(f" · {quoted(here.server.server)}", "dim")
    if number > 1:
        left.append(f" · one of {number}, e: next")
    player, clock = here.server.player, f"{words.clock(here.engine.at)} UTC"
    if player is not None:
        share = (player.at - player.begins) / max(1e-9, player.ends - player.begins)
        state = f"playing {player.speed:g}x" if player.playing else "paused"
        pace = f"at {words.share(share)}, {state}"
    right = f"OLD, of {clock}" if here.seen.problem is not None else f"{clock}, {pace}"
    left.truncate(max(0, width - cell_len(right) - 2), overflow="ellipsis")
    left.append(" " * (width - left.cell_len - cell_len(right)))
    return left.append(right, "reverse" if here.seen.problem is not None else "")


def trouble(seen: PlaceStatus, width: int) -> list[Text]:
    """The reason why a place cannot be read, or that it could not until a moment ago."""
    if seen.problem is not None:
        since = "" if seen.since is None else f" since {words.clock(seen.since)} UTC"
        kept = "; the values below are old" if seen.servers else ""
        return wrapped(f"No answer{since}{kept}. {one_line(seen.problem)}", width, "bold red")[:3]
    if seen.returned is not None:
        return [Text(f"{quoted(seen.place)}: {seen.returned}", "green")]
    return [
        Text(f"{quoted(server.server)}: {server.state or 'no engine has identified itself'}", "dim")
        for server in seen.servers
        if not server.engines
    ]


def _pool(here: WatchedEngine, width: int) -> list[Text]:
    found = parts(here)
    if not found:
        return [Text("Pool: not reported", "dim")]
    has_blocks = here.figures.value("kvscope_kv_blocks") is not None
    legend = legend_of(found, words.short if has_blocks else words.share, width)
    return [strip(found, width), legend[0]]


def numbers(here: WatchedEngine, width: int) -> list[Text]:
    """The headline numbers in as many columns as fit; one that is not reported says so."""
    across = max(1, (width + 2) // (_CELL + 2))
    cells = [_cell(one, here) for one in HEADLINES]
    rows = (cells[begin : begin + across] for begin in range(0, len(cells), across))
    return [Text("  ").join(row) for row in rows]


def _cell(one: Headline, here: WatchedEngine) -> Text:
    cell = Text().append(f"{one.label:<{_LABEL}}", "dim")
    if one.read(here.figures) is None:
        return cell.append(f"{words.NOT_REPORTED:<{_CELL - _LABEL}}", "dim italic")
    values = here.values.get(one.key, ())[-_SPARK:]
    known = [value for value in values if value is not None]
    highest = 1.0 if one.show is words.share else max(known, default=0.0)
    bars = "".join(" " if value is None else _bar(value, highest) for value in values)
    if values and values[-1] is not None:
        cell.append(f"{one.show(values[-1]):>{_FIGURE}} ", "bold")
    else:
        cell.append(f"{'no data':>{_FIGURE}} ", "dim")
    return cell.append(bars.rjust(_SPARK), "color(39)")


def _bar(value: float, highest: float) -> str:
    last = len(_BARS) - 1
    return _BARS[min(last, max(0, round(value / highest * last)))] if highest > 0 else _BARS[0]
