"""The screen of `kvscope top`: draws what the followers have seen, and does what keys ask for."""

import asyncio
import signal
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from kvscope.output import EXIT_SIGNALLED
from kvscope.replay.player import Player
from kvscope.top.follower import Follower, Key, PlaceStatus
from kvscope.top.head import head, numbers
from kvscope.top.headline import HEADLINES
from kvscope.top.keys import KEYS, SCROLLING, move
from kvscope.top.panel_view import PanelView, joined
from kvscope.top.panels import ENGINES, PANELS
from kvscope.top.situation import situation_of, wrapped
from kvscope.top.sources import Source

_WIDE, _MEDIUM, _TALL = 159, 20, 40
"""Columns that hold panels side by side, and lines that leave room for longer ones."""
_NUM_LEFT = 4
"""Panels in the left column of a wide screen."""
_LEAST = 5
"""Lines that the head leaves to the panels and the keys."""


class Help(ModalScreen[None]):
    """Goes with any of its keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,h,escape", "dismiss", "back", key_display="?"),
    ]

    def __init__(self, lines: list[Text]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(joined(self._lines))
        yield Footer(compact=True)


class Top(App[int]):
    """Its result is the exit status."""

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    CSS = """
    #head { height: auto; }
    .-old #head, .-old #panels { text-style: dim; }
    VerticalScroll { scrollbar-size: 0 1; }
    Static { text-wrap: nowrap; text-overflow: ellipsis; }
    #panels { height: 1fr; }
    .-wide #panels { layout: horizontal; }
    .column { height: auto; width: 1fr; }
    PanelView { height: auto; max-height: 4; scrollbar-gutter: stable; }
    PanelView { border-top: solid ansi_blue; }
    PanelView:focus { border-top: heavy ansi_bright_blue; }
    .-medium PanelView:focus { max-height: 6; }
    .-tall PanelView { max-height: 16vh; }
    .-tall PanelView:focus { max-height: 32vh; }
    .-tall #right PanelView { max-height: 24vh; }
    Input { height: 1; border: none; padding: 0; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*KEYS]

    def __init__(self, sources: Sequence[Source], interval: float, player: Player | None) -> None:
        super().__init__(ansi_color=True)
        self.theme, self.animation_level = "ansi-dark", "none"
        self._interval, self._player = interval, player
        changed = partial(self.call_later, self._draw)  # from any thread
        self._followers = [Follower(source, interval, changed) for source in sources]
        self._frozen: list[PlaceStatus] | None = None
        self._engine: Key | None = None
        self._panel: PanelView | None = None

    def compose(self) -> ComposeResult:
        views = [PanelView(number, panel) for number, panel in enumerate(PANELS, 1)]
        yield Static(id="head")
        with VerticalScroll(id="panels", can_focus=False):
            yield Vertical(*views[:_NUM_LEFT], classes="column")
            yield Vertical(*views[_NUM_LEFT:], classes="column", id="right")
        yield Input(placeholder="text in a row; Enter keeps it, Escape drops it", compact=True)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            leave = partial(self.exit, EXIT_SIGNALLED + number)
            asyncio.get_running_loop().add_signal_handler(number, leave)
        for follower in self._followers:
            follower.start()

    def on_unmount(self) -> None:
        for follower in self._followers:
            follower.end()

    def on_resize(self, event: Resize) -> None:
        screen = self.screen_stack[0]
        screen.set_class(event.size.width >= _WIDE, "-wide")
        screen.set_class(event.size.height >= _MEDIUM, "-medium")
        screen.set_class(event.size.height >= _TALL, "-tall")
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        screen = self.screen_stack[0]
        places = self._frozen or [follower.seen for follower in self._followers]
        situation = situation_of(places, self._engine)
        width, height = self.size
        pace = f"every {self._interval:g} s" if self._frozen is None else "FROZEN"
        lines = head(places, situation, width, pace, most=1 if height < _MEDIUM else 2)
        if situation.all:
            lines += numbers(situation.here, width)
            screen.set_class(situation.here.seen.problem is not None, "-old")
        screen.query_one("#head", Static).update(joined(lines[: max(1, height - _LEAST)]))
        for view in screen.query(PanelView):
            view.display = len(situation.all) > (view.panel is ENGINES)
            if view.display:
                view.draw(situation)
        if situation.all and self.screen is screen and self.focused is None:
            screen.query(PanelView).first().focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != ("freeze" if self._player is not None else "move")

    def action_leave(self, status: int) -> None:
        self.exit(status)

    def action_help(self) -> None:
        lines, width = [Text("Keys", "bold")], min(78, self.size.width - 2)
        for key in (*KEYS, *SCROLLING):
            if key.tooltip and self.check_action(key.action.partition("(")[0], ()):
                lines += wrapped(
                    f"{key.key_display or key.key:<14} {key.tooltip}", width, indent=15
                )
        lines.append(Text("Panels", "bold"))
        for number, panel in enumerate(PANELS, 1):
            lines += wrapped(f"{number} {panel.title:<12} {panel.help}", width, indent=15)
        lines.append(Text("Numbers", "bold"))
        for one in HEADLINES:
            lines += wrapped(f"{one.label:<14} {one.help}", width, indent=15)
        self.push_screen(Help(lines))

    def action_panel(self, place: int) -> None:
        list(self.query(PanelView))[place].focus()

    def action_freeze(self) -> None:
        self._frozen = [f.seen for f in self._followers] if self._frozen is None else None
        self._draw()

    def action_move(self, name: str) -> None:
        assert self._player is not None
        self._followers[0].read_now(partial(move, self._player, name))

    def action_engine(self, by: int) -> None:
        places = self._frozen or [follower.seen for follower in self._followers]
        situation = situation_of(places, self._engine)
        if situation.all:
            chosen = (situation.chosen + by) % len(situation.all)
            self._engine = situation.all[chosen].engine.key
            self._draw()

    def action_sort(self) -> None:
        if isinstance(self.focused, PanelView):
            self.focused.next_sort()
            self._draw()

    def action_filter(self) -> None:
        if isinstance(self.focused, PanelView):
            self._panel = self.focused
            typed = self.query_one(Input)
            typed.value, typed.display = self._panel.pattern, True
            typed.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._panel is not None:
            self._panel.pattern = event.value
            self._draw()

    def on_input_submitted(self) -> None:
        if self._panel is not None:
            self._panel.focus()

    def on_input_blurred(self) -> None:
        self.query_one(Input).display = False

    def action_drop(self) -> None:
        self._panel = self.focused if isinstance(self.focused, PanelView) else self._panel
        if self._panel is not None:
            self._panel.pattern = ""
            self._panel.focus()
            self._draw()
