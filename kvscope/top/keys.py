"""Keys of the screen and of its panels, and how a recording is moved by them."""

from textual.binding import Binding

from kvscope.output import EXIT_SIGNALLED
from kvscope.replay.player import MAX_SPEED, Player

_JUMP_NS = 10 * 10**9


def _key(keys: str, action: str, label: str = "", help: str = "", shown: str = "") -> Binding:
    """label: a word for the bottom line; without one, the help alone names it."""
    shown = shown or keys.replace(",", " ")
    return Binding(keys, action, label, bool(label), shown, tooltip=help)


KEYS = (
    _key("q", "leave(0)", "quit", "Quit."),
    Binding("ctrl+c", f"leave({EXIT_SIGNALLED + 2})", show=False, priority=True),
    _key("ctrl+z", "suspend_process", "", "Give the terminal to the shell, until `fg`."),
    _key("question_mark,h", "help", "help", "This help, and back.", "?"),
    Binding("tab", "app.focus_next", "panel", priority=True, tooltip="The next panel."),
    _key("shift+tab", "app.focus_previous", "", "The previous panel."),
    _key("space", "move('pause')", "pause", "Pause, and play."),
    _key("right,full_stop", "move('step')", "step", "One step forward, and pause.", "→"),
    _key("left,comma", "move('step_back')", "", "One step back, and pause.", "←"),
    _key("right_square_bracket", "move('jump')", "+10 s", "Ten seconds forward.", "]"),
    _key("left_square_bracket", "move('jump_back')", "", "Ten seconds back.", "["),
    _key("plus,equals_sign", "move('faster')", "speed", "Twice as fast.", "+"),
    _key("minus", "move('slower')", "", "Half as fast.", "-"),
    _key("m", "move('mark')", "mark", "To the next moment that the recorder marked."),
    _key("space", "freeze", "freeze", "Freeze what is shown, and go on."),
    _key("s", "sort", "sort", "Sort the panel by its next column."),
    _key("slash", "filter", "filter", "Show only rows with a text; Enter keeps it.", "/"),
    _key("escape", "drop", "", "Show all rows again."),
    _key("e", "engine(1)", "engine", "The next engine or server."),
    _key("E", "engine(-1)", "", "The previous engine or server."),
    *(Binding(f"{number}", f"panel({number - 1})", show=False) for number in range(1, 9)),
)
SCROLLING = (
    _key("up,k", "scroll_up", "", "Scroll the panel up."),
    _key("down,j", "scroll_down", "", "Scroll the panel down."),
    _key("pageup", "page_up", "", "Scroll it up by a page."),
    _key("pagedown", "page_down", "", "Scroll it down by a page."),
    _key("home,g", "scroll_home", "", "Back to its first row."),
)
"""Those of a panel."""


def move(player: Player, name: str) -> None:
    """name: that in the action of a key."""
    status = player.status()
    if name == "pause" and status.playing:
        player.pause()
    elif name == "pause":
        if status.at >= status.ends:
            player.seek(player.file.begins_ns)
        player.play(status.speed)
    elif name in ("faster", "slower"):
        player.play(min(MAX_SPEED, status.speed * (2.0 if name == "faster" else 0.5)))
    elif name in ("step", "step_back"):
        player.step(1 if name == "step" else -1)
    elif name in ("jump", "jump_back"):
        player.seek(round(status.at * 1e9) + (_JUMP_NS if name == "jump" else -_JUMP_NS))
    elif later := [mark for mark, *_ in status.marks if mark > status.at + 1e-6]:
        player.seek(round(later[0] * 1e9))
