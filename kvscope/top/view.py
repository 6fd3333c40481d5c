"""The choices of a viewer: engine, first panel, its order and filter. Keys change them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvscope.top.follower import Key as EngineKey
from kvscope.top.keys import KEYS, Action
from kvscope.top.situation import Panel

_PAGE = 10
_MAX_FILTER = 40
_BY_NAME = {name: key for key in KEYS for name in key.names}


@dataclass(slots=True)
class View:
    """Only keys change it; readings do not."""

    panels: Sequence[Panel]
    is_recording: bool = False
    panel: int = 0
    engine: EngineKey | None = None
    """None: the first one."""
    pattern: str = ""
    is_typing: bool = False
    frozen: bool = False
    help: bool = False
    first: int = 0
    """The first row that is shown of the first panel."""
    sorts: dict[str, str] = field(default_factory=dict)
    """The column by which a panel is sorted; without one it is as the answer has it."""

    @property
    def ordered(self) -> list[Panel]:
        """The panels, from the chosen one on."""
        return [*self.panels[self.panel :], *self.panels[: self.panel]]

    def press(
        self, name: str, engines: Sequence[EngineKey], sortable: Mapping[str, Sequence[str]]
    ) -> Action | None:
        """Change the view; what concerns others is returned.

        engines: those that there are now. sortable: columns of each panel.
        """
        if self.is_typing:
            self._type(name)
            return None
        if name == "escape":
            self.help, self.pattern, self.first = False, "", 0
            return None
        if name.isdecimal() and 0 < int(name) <= len(self.panels):
            self._choose(int(name) - 1)
            return None
        key = _BY_NAME.get(name)
        if key is None or (key.recordings_only and not self.is_recording):
            return None
        action = key.action
        if action in ("next_panel", "previous_panel"):
            self._choose(self.panel + (1 if action == "next_panel" else -1))
        elif action in ("next_engine", "previous_engine"):
            self._go(1 if action == "next_engine" else -1, engines)
        elif action == "sort":
            self._sort(sortable.get(self.panels[self.panel].key, ()))
        elif action == "filter":
            self.is_typing, self.first = True, 0
        elif action == "help":
            self.help = not self.help
        elif action == "freeze" and not self.is_recording:
            self.frozen = not self.frozen
        elif action in ("up", "down", "page_up", "page_down", "first"):
            by = {"up": -1, "down": 1, "page_up": -_PAGE, "page_down": _PAGE}.get(action)
            self.first = 0 if by is None else max(0, self.first + by)
        else:
            return action
        return None

    def _type(self, name: str) -> None:
        if name in ("enter", "escape"):
            self.is_typing = False
            if name == "escape":
                self.pattern = ""
        elif name == "backspace":
            self.pattern = self.pattern[:-1]
        elif len(name) == 1:
            self.pattern = (self.pattern + name)[:_MAX_FILTER]

    def _choose(self, panel: int) -> None:
        self.panel = panel % len(self.panels)
        self.first = 0

    def _go(self, by: int, engines: Sequence[EngineKey]) -> None:
        if engines:
            here = engines.index(self.engine) if self.engine in engines else 0
            self.engine = engines[(here + by) % len(engines)]
            self.first = 0

    def _sort(self, columns: Sequence[str]) -> None:
        panel = self.panels[self.panel].key
        choices = ["", *columns]
        now = self.sorts.get(panel, "")
        self.sorts[panel] = choices[(choices.index(now) + 1) % len(choices)] if columns else ""
        self.first = 0
