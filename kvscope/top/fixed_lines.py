"""The lines that are always there: verdict, engine, trouble, pool, headline; and the keys.

At 80 columns and 24 lines they leave half of the screen to the panels.
"""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from exporter import words
from kvscope.top.follower import Seen
from kvscope.top.headline import HEADLINES, Headline
from kvscope.top.keys import KEYS, SHOWN
from kvscope.top.panels.why import verdict
from kvscope.top.pool_strip import legend_of, parts, strip
from kvscope.top.situation import Watched, cropped, situation_of, wrapped
from kvscope.top.view import View
from kvscope_events.printable import one_line, quoted

_BARS = "▁▂▃▄▅▆▇█"
_TALL = 40
"""Lines of a screen that has room for more than one line of each fixed part."""
_CELL = 25
"""Width of a headline number: label, figure and bars."""
_LABEL, _FIGURE = 10, 7


def top_lines(
    places: Sequence[Seen],
    engines: Sequence[Watched],
    view: View,
    width: int,
    height: int,
    interval: float,
) -> list[Text]:
    """The lines that are always there."""
    lines: list[Text] = []
    if not engines:
        asked = [seen for seen in places if not seen.servers and seen.problem is None]
        lines += [Text(f"Asking {quoted(seen.place)} …", "bold") for seen in asked]
        lines += [Text("No engine is known yet.", "bold")] if len(asked) < len(places) else []
        return lines + [line for seen in places for line in trouble(seen, width)]
    here = situation_of(engines, view.engine).here
    is_tall = height >= _TALL
    is_old = here.seen.problem is not None
    lines += trouble(here.seen, width)
    verdict_lines = _verdict(here, width, 1 if is_old else 4 if is_tall else 2)
    lines += [*verdict_lines, title(here, len(engines), view, width, f"every {interval:g} s")]
    lines += [line for seen in places if seen is not here.seen for line in trouble(seen, width)]
    lines += [*pool(here, width, 2 if is_tall else 1), *headline(here, width)]
    return lines


def _verdict(here: Watched, width: int, most: int) -> list[Text]:
    sentence, style = verdict(here)
    lines = wrapped(sentence, width, indent=2)
    if len(lines) > most:
        lines = lines[:most]
        lines[-1] = Text(f"{lines[-1].plain[: width - 2]} …")
    lines[0].stylize(style, 0, 1)
    lines[0].stylize("bold", 1)
    return lines


def title(here: Watched, number: int, view: View, width: int, pace: str) -> Text:
    """The engine on the left; the moment on the right."""
    left = Text().append(here.engine.title, "bold")
    if here.server.state and here.server.state != "ready":
        left.append(f" · {here.server.state}", "bold red")
    left.append(f" · {quoted(here.server.server)}", "dim")
    if number > 1:
        left.append(f" · one of {number}, e: next")
    player, is_marked = here.server.player, view.frozen or here.seen.problem is not None
    if player is not None:
        share = (player.at - player.begins) / max(1e-9, player.ends - player.begins)
        state = f"playing {player.speed:g}x" if player.playing else "paused"
        right = f"{words.clock(player.at)} UTC, at {words.share(share)}, {state}"
    elif view.frozen:
        right = f"FROZEN at {words.clock(here.engine.at)} UTC"
    elif here.seen.problem is not None:
        right = f"OLD, of {words.clock(here.engine.at)} UTC"
    else:
        right = f"{words.clock(here.engine.at)} UTC, {pace}"
    room = width - cell_len(right) - 2
    left = cropped(left, room)
    left.append(" " * (width - cell_len(left.plain) - cell_len(right)))
    return left.append(right, "reverse" if is_marked else "")


def trouble(seen: Seen, width: int) -> list[Text]:
    """The reason why a place cannot be read, or that it could not until a moment ago."""
    if seen.problem is not None:
        since = "" if seen.since is None else f" since {words.clock(seen.since)} UTC"
        kept = "; the values below are old" if seen.servers else ""
        return wrapped(f"No answer{since}{kept}. {one_line(seen.problem)}", width, "bold red")[:3]
    if seen.returned is not None:
        return [Text(f"{quoted(seen.place)}: {seen.returned}", "green")]
    silent = [server for server in seen.servers if not server.engines]
    return [
        Text(f"{quoted(server.server)}: {server.state or 'no engine has identified itself'}", "dim")
        for server in silent
    ]


def pool(here: Watched, width: int, height: int) -> list[Text]:
    """The strip and its legend."""
    found = parts(here)
    if not found:
        return [Text("Pool: not reported", "dim")]
    reports_blocks = here.figures.value("kvscope_kv_blocks") is not None
    lines = strip(found, width, height)
    if reports_blocks:
        return lines + legend_of(found, width)[:1]
    return lines + legend_of(found, width, lambda blocks: words.share(blocks / 1000))[:1]


def headline(here: Watched, width: int) -> list[Text]:
    """The numbers in as many columns as fit; a number that is not reported says so."""
    across = max(1, (width + 2) // (_CELL + 2))
    cells = [_cell(one, here) for one in HEADLINES]
    lines = []
    for begin in range(0, len(cells), across):
        line = Text("  ").join(cells[begin : begin + across])
        lines.append(line)
    return lines


def _cell(one: Headline, here: Watched) -> Text:
    values = here.values.get(one.key, ())
    is_reported = one.read(here.figures) is not None
    cell = Text().append(f"{one.label:<{_LABEL}}", "dim")
    if not is_reported:
        return cell.append(f"{words.NOT_REPORTED:<{_CELL - _LABEL}}", "dim italic")
    value = values[-1] if values else None
    shown = "no data" if value is None else one.show(value)
    cell.append(f"{shown:>{_FIGURE}} ", "bold" if value is not None else "dim")
    room = _CELL - _LABEL - _FIGURE - 1
    return cell.append(_spark(values, room, one.top), "color(39)")


def key_line(view: View, width: int) -> Text:
    """The bottom line: keys, or what is typed."""
    line = Text(no_wrap=True)
    if view.is_typing:
        return line.append(f"filter: {view.pattern}▏  Enter keeps it, Escape drops it", "bold")
    for key in KEYS:
        if not key.label or (key.recordings_only and not view.is_recording):
            continue
        is_pause = key.action == "freeze" and view.is_recording
        entry = f" {'pause' if is_pause else key.label}"
        name = SHOWN.get(key.names[0], key.names[0])
        if cell_len(line.plain) + len(name) + len(entry) + 2 > width:
            break
        line.append("  " if line else "")
        line.append(name, "bold reverse")
        line.append(entry)
    return line


def help_lines(view: View, width: int) -> list[Text]:
    """All keys, panels and numbers."""
    lines = [Text("Keys", "bold")]
    for key in KEYS:
        if view.is_recording or not key.recordings_only:
            names = " ".join(SHOWN.get(name, name) for name in key.names)
            lines += wrapped(f"{names:<10} {key.help}", width, indent=11)
    lines.append(Text("Panels", "bold"))
    for number, panel in enumerate(view.panels, 1):
        lines += wrapped(f"{number} {panel.title:<12} {panel.help}", width, indent=15)
    lines.append(Text("Numbers", "bold"))
    for one in HEADLINES:
        lines += wrapped(f"{one.label:<10} {one.help}", width, indent=11)
    return lines[view.first :]


def _spark(values: Sequence[float | None], width: int, top: float | None = None) -> str:
    """The last `width` values as bars from 0 to `top`, or their maximum; a gap where unknown."""
    shown = values[-width:]
    known = [value for value in shown if value is not None]
    highest = top if top is not None else max(known, default=0.0)
    bars = "".join(" " if value is None else _bar(value, highest) for value in shown)
    return bars.rjust(width)


def _bar(value: float, highest: float) -> str:
    if highest <= 0:
        return _BARS[0]
    return _BARS[min(len(_BARS) - 1, max(0, round(value / highest * (len(_BARS) - 1))))]
