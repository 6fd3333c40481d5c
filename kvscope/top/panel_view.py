"""A panel on the screen: its place, order and filter, which keys change for the focused one."""

from typing import ClassVar

from rich.markup import escape
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from kvscope.top.keys import SCROLLING
from kvscope.top.situation import Panel, Situation
from kvscope.top.table import Table


class PanelView(VerticalScroll, inherit_bindings=False):
    """Draws one panel."""

    BINDINGS: ClassVar[list[BindingType]] = [*SCROLLING]

    def __init__(self, number: int, panel: Panel) -> None:
        super().__init__()
        self._number, self.panel = number, panel
        self.sort = self.pattern = ""
        self._sorts: list[str] = []
        self._situation: Situation | None = None

    def compose(self) -> ComposeResult:
        yield Static()

    def on_focus(self) -> None:  # which changes heights
        self.call_after_refresh(self.scroll_visible, top=True)

    def on_resize(self) -> None:
        if self._situation is not None:
            self.draw(self._situation)

    def draw(self, situation: Situation) -> None:
        self._situation = situation
        width = self.scrollable_content_region.width or self.app.size.width
        note, drawn = self.panel.draw(situation, width)
        self._sorts = drawn.sorts if isinstance(drawn, Table) else []
        lines = drawn.draw(width, self.sort, self.pattern) if isinstance(drawn, Table) else drawn
        filtered = f" /{self.pattern}" if self.pattern else ""
        title = escape(f"{self._number} {self.panel.title}{filtered}")
        self.border_title = f"[bold]{title}[/]" + (f"  {escape(note)}" if note else "")
        self.query_one(Static).update(joined(lines))

    def next_sort(self) -> None:
        choices = ["", *self._sorts]
        place = choices.index(self.sort) if self.sort in choices else 0
        self.sort = choices[(place + 1) % len(choices)]


def joined(lines: list[Text]) -> Text:
    """One text of those lines, which are not wrapped again."""
    return Text("\n", no_wrap=True, overflow="ellipsis", end="").join(lines)
